package export

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/serry-dev/serry"
)

// A Member is one task of the job. *client.Member is one.
type Member interface {
	Task() serry.TaskID
	Barrier(ctx context.Context, id string, o serry.BarrierOptions) error
}

// Keys is the key-value store of the job. *client.KV is one.
type Keys interface {
	Put(ctx context.Context, key string, value []byte) error
	List(ctx context.Context, dir string) ([]serry.Entry, error)
	Wait(ctx context.Context, key string) ([]byte, error)
}

// A DisagreeError says which task bound a program in another way than this one, and how: A of the first
// difference is what this task has, B what the other has.
type DisagreeError struct {
	Program string
	Task    serry.TaskID // the other one
	First   Difference
}

func (e *DisagreeError) Error() string {
	return fmt.Sprintf("program %q: this task and %v disagree on %s: here %s, there %s",
		e.Program, e.Task, plain(e.First.What), plain(orAbsent(e.First.A)), plain(orAbsent(e.First.B)))
}

// Unwrap gives [ErrDisagree].
func (e *DisagreeError) Unwrap() error { return ErrDisagree }

// Agree makes sure that every task of the job bound the program in the same way (P-EXP-6). All tasks
// call it with the same name, which stands for one check in the life of the job: its keys stay. On every
// task it returns nil, or a [*DisagreeError] that names the first difference from another task. If that
// task dies before it says what it bound, the error is a plain [ErrDisagree] with the cause.
//
// Each task writes a digest, and after a barrier reads those of all. Only if they differ does a task
// write the whole of what it bound, so that agreement costs one small key for each task. All tasks read
// the same digests, because none is written after the barrier; so all come to the same verdict.
// ctx bounds the waits: in a cluster whose tasks may come back, a death alone does not end them.
func Agree(ctx context.Context, me Member, keys Keys, name string, b *Bound) error {
	dir := "serry/export/" + url.PathEscape(name) // no slash: the keys of "a" and "a/digest" stay apart
	mine := []byte(b.Digest())
	if err := keys.Put(ctx, dir+"/digest/"+me.Task().String(), mine); err != nil {
		return err
	}
	if err := me.Barrier(ctx, dir, serry.BarrierOptions{}); err != nil {
		return err
	}
	all, err := keys.List(ctx, dir+"/digest")
	if err != nil {
		return err
	}
	other := slices.IndexFunc(all, func(e serry.Entry) bool { return !bytes.Equal(e.Value, mine) })
	if other < 0 && b.Manifest.Program.SHA256 == "" {
		return bindErrorf("program %q: the manifest has no sha256 of the program, so the tasks may run different ones", name)
	}
	if other < 0 {
		return nil
	}
	task, err := taskOf(all[other].Key)
	if err != nil {
		return err
	}
	facts := func(t serry.TaskID) string { return dir + "/facts/" + t.String() }
	text, err := json.Marshal(b.facts())
	if err != nil {
		return err
	}
	if err := keys.Put(ctx, facts(me.Task()), text); err != nil {
		return err
	}
	theirs, err := keys.Wait(ctx, facts(task))
	if err != nil {
		return fmt.Errorf("%w: program %q: the digest of %v differs, and what it bound is not known: %w", ErrDisagree, name, task, err)
	}
	return disagreement(name, task, b, theirs)
}

// taskOf reads the task at the end of a key.
func taskOf(key string) (serry.TaskID, error) {
	parts := strings.Split(key, "/")
	return serry.ParseTaskID(strings.Join(parts[max(0, len(parts)-2):], "/"))
}

// disagreement finds the first difference between b and what another task wrote.
func disagreement(name string, task serry.TaskID, b *Bound, theirs []byte) error {
	var there facts
	if err := json.Unmarshal(theirs, &there); err != nil {
		return formErrorf("what %v wrote about program %q: %v", task, name, err)
	}
	found := difference(b.facts(), there)
	if len(found) == 0 {
		return fmt.Errorf("%w: program %q: the digest of %v differs, but not what it bound; "+
			"the tasks run different versions of serry", ErrDisagree, name, task)
	}
	return &DisagreeError{Program: name, Task: task, First: found[0]}
}
