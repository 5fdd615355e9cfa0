package launch

// Edge is one legal change of state and what may cause it.
type Edge struct {
	From State // zero for the creation of a launch
	To   State
	By   []CommandKind
	When string
}

// Table returns the transition table (rule launch/table). It is the only list
// of legal changes: Apply refuses to leave it, and testdata/contract holds the
// same table as data for other implementations.
func Table() []Edge { return table }

var table = []Edge{
	{0, Queued, []CommandKind{CmdReserve}, "every preflight check passed"},
	{Queued, Starting, []CommandKind{CmdClaim}, "claimed"},
	{Queued, Cancelled, []CommandKind{CmdCancel}, "cancelled before anything ran"},
	{Starting, Running, []CommandKind{CmdStart}, "engine built; run record in the same transaction"},
	{Starting, Failed, []CommandKind{CmdFail, CmdClaim, CmdRecover, CmdRelease}, "activation failed, definition changed without a run record, third expiry, record unreadable, or the record proves it"},
	{Starting, Cancelled, []CommandKind{CmdCancel, CmdRecover, CmdRelease}, "cancelled, or the record proves it"},
	{Starting, Queued, []CommandKind{CmdRecover, CmdRelease, CmdPause}, "lease expired, released or paused, without a run record"},
	{Starting, Parked, []CommandKind{CmdRecover, CmdRelease, CmdPause}, "lease expired, released or paused, with a run record"},
	{Starting, Done, []CommandKind{CmdRecover, CmdRelease}, "the record proves it"},
	{Running, Parked, []CommandKind{CmdPark, CmdRelease, CmdRecover}, "waiting, paused, host closing, lease expired, attention"},
	{Running, Done, []CommandKind{CmdFinish, CmdRecover}, "terminal outcome committed"},
	{Running, Failed, []CommandKind{CmdFail, CmdRecover}, "terminal outcome committed, or record unreadable"},
	{Running, Cancelled, []CommandKind{CmdCancel, CmdRecover}, "cancelled"},
	{Parked, Starting, []CommandKind{CmdClaim}, "due to resume and claimed"},
	{Parked, Done, []CommandKind{CmdSettle}, "outcome that the host decides without running code"},
	{Parked, Failed, []CommandKind{CmdSettle}, "outcome that the host decides without running code"},
	{Parked, Cancelled, []CommandKind{CmdCancel}, "cancelled"},
}

// legal is the table as an index: legal[from][to] is a bit set of commands.
var legal = func() (m [Cancelled + 1][Cancelled + 1]uint32) {
	for _, e := range table {
		for _, c := range e.By {
			m[e.From][e.To] |= 1 << c
		}
	}
	return m
}()

// Legal reports whether the table has an edge for that change by that command.
func Legal(from, to State, by CommandKind) bool {
	return from <= Cancelled && to <= Cancelled && legal[from][to]&(1<<by) != 0
}
