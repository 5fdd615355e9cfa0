package deliverytest_test

import (
	"context"
	"fmt"

	"example.com/piworkflows/delivery"
	"example.com/piworkflows/delivery/deliverytest"
)

// The process dies after the message is on the branch of a fresh session, and
// before it is on disk.
func Example() {
	file := deliverytest.NewFile("s1", "/s1.jsonl")
	pi := file.Start(deliverytest.Options{})
	h := &host{}
	if err := pi.Connect(deliverytest.Via(h.connect)); err != nil {
		fmt.Println(err)
	}
	visible := pi.Hold(deliverytest.PointVisible)
	answer, err := h.conn.session.Send(context.Background(), h.conn.message("m1"))
	fmt.Println("taken:", answer.Verdict == delivery.Taken, err)
	visible.Wait()
	fmt.Println("branch:", len(pi.Branch()), "disk:", file.Count("m1"))
	pi.Kill()

	again := file.Start(deliverytest.Options{})
	defer again.Kill()
	fmt.Println("after a restart:", len(again.Branch()))
	// Output:
	// taken: true <nil>
	// branch: 1 disk: 0
	// after a restart: 0
}
