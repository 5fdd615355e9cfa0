package launchtest_test

import (
	"flag"
	"os"
	"testing"

	"example.com/piworkflows/launch"
	"example.com/piworkflows/launch/launchtest"
	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write the golden picture of the table anew")

func TestPictureOfTheTable(t *testing.T) {
	const golden = "../../testdata/golden/launch.dot"
	got := launchtest.Dot(launch.Table())
	if *rewrite {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("the table changed; look at the change, then run with -rewrite (-golden +table):\n%s", d)
	}
}
