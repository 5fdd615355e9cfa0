// Package delivery sends everything that a session is to be sent. The
// [Coordinator] decides nothing by itself: what is due is decided by the pure
// rules from stored state and the session's latest report, and looked at again
// after every report, commit, deadline and reconnect (rule delivery/look-again).
// While nothing is due in a session, its connection leaves a try in the store,
// so that the commit which makes something due records the attempt as well and
// the bridge is asked at once (rule delivery/offer). What other processes commit,
// and what becomes due while the connection is busy, is tried in a commit of its
// own.
//
// The active time of an open turn is sampled by the host that holds the
// connection. When it is used up, that and the turn which it owes are recorded
// before the turn is stopped, unless the store takes longer than a quarter of a
// second (rule delivery/abort). A call of the model that ends its own turn is
// answered after the turn was told to stop, so that it does not go on with the
// answer (rule delivery/stopped). A [Presenter] shows each open human decision once
// on a [Channel], and takes it back once it is over; a decision that was over before
// it was shown never is (rule delivery/channel).
//
// A bridge to an agent implements [Session] and reports through the [Conn] that
// [Coordinator.Connect] returns. The rules that a bridge has to keep are on the
// methods of both; package deliverytest checks them.
package delivery
