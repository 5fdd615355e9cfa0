//go:build race

package pi

func init() { crowd = 200 } // SQLite is slow under the detector
