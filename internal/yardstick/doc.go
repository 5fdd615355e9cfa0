// Package yardstick measures durable commands in ratios that mean the same on every machine.
//
// A rate alone says more about the disk than about the code, so every benchmark here runs next to
// something simpler on the same disk, in the same run, in turns:
//
//   - [Floor] is one commit that changes one row: what SQLite cannot go below.
//   - [Yardstick] is a launch's life written by hand for speed, with no rules beyond the state check:
//     what an expert would get without a library.
//   - [Compare] runs arms in interleaved repetitions and reports the medians of their ratios.
//
// Both reference files are on the settings a durable store needs: WAL, synchronous=FULL, 4 KiB pages,
// checkpoints every 1,000 log frames, shared locking. They tell about a disk only if the benchmark's
// temporary directory is on one (set TMPDIR when it is a memory file system).
//
// Only benchmarks use this package.
package yardstick
