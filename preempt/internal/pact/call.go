package pact

import (
	"time"

	"github.com/serry-dev/serry"
)

// An Action is a kind of command.
type Action int

// The actions. All but Rest and Pass are calls, and their replies go to [Pact.Heard].
const (
	Rest   Action = iota + 1 // until Until
	Pass                     // until this task has passed the agreed step, or come to its first; or until Until
	Wait                     // for the value of Key, until Until
	List                     // everything below Key
	Create                   // Key with Value, or ErrExists
	Put                      // Value under Key
	Delete                   // Key and everything below it
	Meet                     // all tasks at the barrier Key, unless the key Unless is there first
)

// A Command is what a task does next.
type Command struct {
	Do     Action
	Key    string
	Value  []byte
	Unless string
	Until  time.Time // zero: without end
}

// A Reply is the answer to a call.
type Reply struct {
	Value   []byte        // of Wait: nil if Until came first; of Meet: of the key Unless, if that came first
	Entries []serry.Entry // of List
	Err     error
}

// A Note is something that people and logs should know.
type Note struct {
	Kind   NoteKind
	Notice Notice // of Announced
	Step   int64  // of Agreed
	Why    string // of Failed and Ended
}

// A NoteKind says what happened.
type NoteKind int

// The kinds of notes.
const (
	Announced NoteKind = iota + 1 // the job has heard a notice
	Agreed                        // there is a step to save at
	Failed                        // an attempt failed, there will be another
	Ended                         // a round ended without a step to save at
)
