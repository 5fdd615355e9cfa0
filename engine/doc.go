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
// Besides [Compute] and [Action] there are nodes that ask: [Agent], [Choose] and
// [Respond] the session's model, [Checkpoint] the model or a person, [Decide]
// only a person. Their code makes the question; the run then waits without a
// worker until it is answered. [Notify] says something, [Shell] runs a command,
// and [Include] puts a whole workflow into another one.
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
//   - engine/ask: the code of a node that asks only makes the question, and may
//     make it again after a crash. The answer is checked against the form of the
//     output's type; code of [Validate] runs before it is accepted.
//   - engine/approval: an action that is [Approved] runs only on exactly the value
//     that was decided about: the digests of what both read are equal. A decision
//     approves one effect.
//   - engine/budget: when the active time of an attempt is used up, its context
//     ends with cause [ErrBudget] and the outcome is timed_out, whatever the code
//     returns then; except that an action that returns no error took effect, and
//     that an error of one that is not repeatable leaves it unknown.
//   - engine/shell: a command runs in a process group of its own, which is ended
//     with the command: told to (SIGTERM), and after a grace killed (SIGKILL). An
//     exit code is a result, not an error, unless the command has to succeed.
//   - engine/include: the nodes of an included workflow become nodes of the
//     workflow around it. It ends only at its exits.
//   - engine/stop: when the worker's context ends, that is no outcome: nothing
//     is proposed any more, except that an action has taken effect.
//   - engine/digest: the digest covers name, version, plan, schemas and the digests
//     of included workflows, not code. Change the version when the code changes
//     meaning.
package engine
