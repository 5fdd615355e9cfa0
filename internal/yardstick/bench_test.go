package yardstick_test

import (
	"fmt"
	"testing"

	"example.com/piworkflows/internal/yardstick"
)

// BenchmarkYardstick places the yardstick against the floor. A lone caller's commands cost more than
// the floor's by the pages they dirty; group commit makes several times as many of them durable.
func BenchmarkYardstick(b *testing.B) {
	yardstick.Compare(b, yardstick.FloorArm(), yardstick.YardstickArm(1), yardstick.YardstickArm(64))
}

// BenchmarkRandomIDs shows what ids in the order of time are worth.
func BenchmarkRandomIDs(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			yardstick.Compare(b, yardstick.FloorArm(), yardstick.YardstickArm(callers), yardstick.RandomIDsArm(callers))
		})
	}
}
