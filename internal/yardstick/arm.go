package yardstick

import (
	"context"
	"fmt"
)

// Arm is one side of a comparison.
type Arm struct {
	Name     string // without spaces, unique in its comparison
	Callers  int    // goroutines that call op at the same time; 0 means 1
	Commands int    // durable commands in one op; 0 means 1; rates count commands

	// Setup opens the arm in dir, an empty directory of its own. op does one unit of work; i counts
	// from 0, each value is used once, and with several callers ops overlap. close, which may be nil,
	// is called when nothing runs any more.
	Setup func(dir string) (op func(i int) error, close func() error, err error)
}

// FloorArm commits on one connection, one caller.
func FloorArm() Arm {
	return Arm{Name: "floor", Setup: func(dir string) (func(int) error, func() error, error) {
		f, err := OpenFloor(dir)
		if err != nil {
			return nil, nil, err
		}
		return func(int) error { return f.Commit() }, f.Close, nil
	}}
}

// YardstickArm takes one launch from nothing to done in each op; it is named "yardstick-" and the
// number of callers.
func YardstickArm(callers int) Arm { return yardstickArm("yardstick", callers, false) }

// RandomIDsArm is YardstickArm with launch ids that are not in the order of time; it is named
// "yardstick-random-ids-" and the number of callers.
func RandomIDsArm(callers int) Arm { return yardstickArm("yardstick-random-ids", callers, true) }

func yardstickArm(name string, callers int, randomIDs bool) Arm {
	return Arm{
		Name: fmt.Sprintf("%s-%d", name, callers), Callers: callers, Commands: CommandsPerLifecycle,
		Setup: func(dir string) (func(int) error, func() error, error) {
			y, err := Open(dir)
			if err != nil {
				return nil, nil, err
			}
			y.RandomIDs = randomIDs
			return func(int) error { return y.Lifecycle(context.Background()) }, y.Close, nil
		},
	}
}
