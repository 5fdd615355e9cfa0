// Package engine is how an author writes a workflow and how a worker runs it.
//
// A workflow is built once, by plain Go: each node is a handle that carries its
// output type, later nodes read handles, and edges join handles. Nothing
// between nodes is named by a string or typed by hand:
//
//	w := engine.New[Task]("review", "1")
//	draft := engine.Compute(w, "draft", w.Input(), writeDraft)
//	judge := engine.Compute(w, "judge", draft, judgeDraft)
//	publish := engine.Action(w, "publish", draft, post, engine.Unrepeatable())
//	engine.Then(draft, judge)
//	engine.Switch(judge, engine.Case(Good, publish), engine.Case(Bad, draft))
//	wf, err := w.Build()
//
// Build validates the whole graph and returns a [Workflow]: plain data with a
// digest, plus the functions. A misuse of the builder is an error of Build that
// names the node, never a panic. [Work] runs the current node of a run and
// proposes what came out; the [Host] decides.
//
// # Rules
//
//   - engine/start: the first node that is defined is the start node.
//   - engine/frozen: a function sees the workflow's input and accepted outputs,
//     decoded afresh for each call; changing them changes nothing.
//   - engine/edges: a node has at most one way on. Then and Switch are taken on
//     outcome ok; OnOutcome routes failures. A node that ends without a way on
//     ends the run.
//   - engine/reads: reading a node that may not have run is refused by Build;
//     [Maybe] reads it as a pointer that is nil until then.
//   - engine/action: an action is an effect that is reserved before its code
//     starts. Its [Policy] says what happens when a crash leaves it unsettled.
//   - engine/error: the text of a returned error or a panic may hold private
//     input, so it is never stored or shown. [Explain] gives an error the words
//     that may be.
//   - engine/unknown: an error of an action says that the effect did not happen,
//     unless it is wrapped by [Unknown]. A panic of an action that is not
//     repeatable says nothing, so its effect is unknown too.
//   - engine/stop: when the worker's context ends, that is no outcome: nothing
//     is proposed any more, except that an action has taken effect.
//   - engine/digest: the digest covers name, version, plan and schemas, not
//     code. Change the version when the code changes meaning.
package engine
