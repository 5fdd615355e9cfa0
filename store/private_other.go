//go:build !unix

package store

// private says that file modes say who may read a file.
const private = false
