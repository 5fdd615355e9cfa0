// Package pi connects a host to the Pi coding agent: an [Endpoint] on a Unix
// socket, and the extension that Pi loads and that speaks with it.
//
//	endpoint, err := pi.Listen(pi.Options{Host: pi.ForRuntime(runtime)})
//	cmd := exec.Command("pi", "-e", endpoint.ExtensionPath())
//	cmd.Env = append(os.Environ(), endpoint.Env()...)
//
// Close the endpoint before the runtime.
//
// # Rules
//
// The protocol is on one page, PROTOCOL.md, with examples of every message in
// testdata/pi.
//
//   - pi/private: the directory can be entered and the socket opened by the owner
//     alone, and a peer shows a random token first, compared in constant time. The
//     token is in the environment of Pi until the extension has read it. It is
//     made anew for each launch, or kept in a directory that the host names, for
//     its own next launch.
//   - pi/strict: a frame is one line of JSON of at most [MaxFrame] bytes, decoded
//     strictly. A peer that breaks a rule loses its own connection, with a reason
//     of at most 200 bytes that repeats nothing it said.
//   - pi/large: a frame beyond [MaxFrame] is named by digest and fetched in chunks,
//     up to [MaxContent].
//   - pi/order: reports are taken one by one, in order; each is answered once it is
//     committed, and repeated by the extension until it is. A repeat is adopted.
//     What the host asks meanwhile is answered beside them; a peer that says more
//     than 8 frames beyond an unanswered report waits for its answer.
//   - pi/stall: what a peer does not read is kept up to [MaxQueue]; then its
//     connection ends. No peer waits for another.
package pi
