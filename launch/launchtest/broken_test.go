package launchtest_test

import "errors"

func is(err, kind error) bool { return errors.Is(err, kind) }
