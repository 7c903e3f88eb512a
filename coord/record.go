package coord

import (
	"errors"
	"fmt"

	"github.com/serry-dev/serry"
)

// AppendRecord appends the journal's form of an event to b: the event that [Machine.Journaled]
// returned after a Step, and the machine's time then. [Machine.AppendRecord] does it in the version
// of the machine, this function in that of the package. Equal events give equal bytes. Large values
// are handed to aside, which returns the name that stands for them; nil keeps them in the record.
//
// A record is the time, a byte for the kind of the event, and the fields of the event, sealed
// with version, length and checksum. It panics for an event that has no record: that would be a
// mistake in this package, and the journal must not go on without the event.
func AppendRecord(b []byte, at Time, ev Event, aside func(value []byte) Ref) []byte {
	return appendRecord(b, Config{}.written(), at, ev, aside)
}

// AppendRecord appends the record of an event that [Machine.Journaled] returned after the last
// Step, as the function AppendRecord does.
func (m *Machine) AppendRecord(b []byte, ev Event, aside func(value []byte) Ref) []byte {
	return appendRecord(b, m.cfg.written(), m.now, ev, aside)
}

func appendRecord(b []byte, version uint64, at Time, ev Event, aside func(value []byte) Ref) []byte {
	c := &coder{b: make([]byte, 0, 128), aside: aside}
	kind := recordKind(ev)
	c.now(&at)
	c.byte((*byte)(&kind))
	c.event(kind, ev)
	if c.err != nil {
		panic(fmt.Sprintf("coord: %T cannot be written: %v", ev, c.err))
	}
	return seal(b, version, c.b)
}

// ReadRecord reads the first record of b and returns the bytes behind it. Calls are marked as
// [Call.Replayed]. It takes any bytes, and never more memory than a multiple of their number, or
// of the largest cluster.
func ReadRecord(b []byte, fetch func(Ref) ([]byte, error)) (at Time, ev Event, rest []byte, err error) {
	return readRecord(b, Config{}.readable(), fetch)
}

// ReadRecord reads what the machine is to step next, as the function ReadRecord does.
func (m *Machine) ReadRecord(b []byte, fetch func(Ref) ([]byte, error)) (at Time, ev Event, rest []byte, err error) {
	return readRecord(b, m.cfg.readable(), fetch)
}

func readRecord(b []byte, newest uint64, fetch func(Ref) ([]byte, error)) (at Time, ev Event, rest []byte, err error) {
	body, rest, err := unseal(b, newest, "journal record")
	if err != nil {
		return 0, nil, nil, fmt.Errorf("record: %w", err)
	}
	// The time stands first, so that a reader of journals finds it without knowing the events.
	c := &coder{b: body, reading: true, fetch: fetch}
	var kind Kind
	c.now(&at)
	c.byte((*byte)(&kind))
	ev = c.event(kind, nil)
	if c.err == nil && len(c.b) > 0 {
		c.err = errors.New("goes on after its end")
	}
	if c.err != nil {
		return 0, nil, nil, fmt.Errorf("record: %w", c.err)
	}
	return at, ev, rest, nil
}

// recordKind is the kind that the record of an event has. Three events have two kinds each: the
// old one, of version 1, dropped the results of the lives that it names. A record of that kind
// must do so when it is replayed, because its clients saw what followed; see [Lost].
func recordKind(ev Event) Kind {
	switch ev := ev.(type) {
	case Suspect:
		if ev.DropsResults {
			return kindOldSuspect
		}
	case Lost:
		if ev.DropsResults {
			return kindOldLost
		}
	case Departed:
		if ev.DropsResults {
			return kindOldDeparted
		}
	}
	return ev.kind()
}

// A recordForm writes the fields of an event, or reads them if ev is nil, and returns the event.
type recordForm func(c *coder, ev Event) Event

// fields makes the form of an event from a function that lists its fields.
func fields[E Event](of func(*coder, *E)) recordForm {
	return func(c *coder, ev Event) Event {
		var e E
		if !c.reading {
			e = ev.(E)
		}
		of(c, &e)
		if !c.reading {
			return ev
		}
		return e
	}
}

// event writes or reads the fields of an event; ev is nil when reading. A kind without a form was
// written by a later version, or is damage.
func (c *coder) event(kind Kind, ev Event) Event {
	if kind >= Kinds || recordForms[kind] == nil {
		if c.err == nil {
			c.failf("event of kind %d", kind)
		}
		return nil
	}
	return recordForms[kind](c, ev)
}

// recordForms has the form of every event that can change state. Fields are only ever added
// together with a new kind, or with a new version: the golden journals of earlier versions must
// replay (C-LOG-4).
var recordForms = [Kinds]recordForm{
	KindRegisterTask: fields((*coder).registerTask),
	KindHeartbeat:    fields(func(c *coder, e *Heartbeat) { c.call(&e.Call) }),
	KindShutdownTask: fields(func(c *coder, e *ShutdownTask) { c.call(&e.Call); c.flags(&e.Recoverable) }),
	KindResetTask:    fields(func(c *coder, e *ResetTask) { c.call(&e.Call) }),
	KindReportError:  fields(func(c *coder, e *ReportError) { c.call(&e.Call); signed(c, &e.Code); c.string(&e.Text) }),
	KindPollForError: fields(func(c *coder, e *PollForError) { c.call(&e.Call) }),
	// Values are written by c.value, so that large ones are kept aside.
	KindInsertKeyValue: fields(func(c *coder, e *InsertKeyValue) {
		c.call(&e.Call)
		c.string(&e.Key)
		c.value(&e.Value)
		c.flags(&e.Overwrite)
	}),
	KindIncrementKeyValue: fields(func(c *coder, e *IncrementKeyValue) { c.call(&e.Call); c.string(&e.Key); signed(c, &e.By) }),
	KindDeleteKeyValue:    fields(func(c *coder, e *DeleteKeyValue) { c.call(&e.Call); c.string(&e.Key) }),
	KindSwapKeyValue: fields(func(c *coder, e *SwapKeyValue) {
		c.call(&e.Call)
		c.string(&e.Key)
		c.value(&e.Old)
		c.value(&e.New)
	}),
	KindBarrier: fields(func(c *coder, e *Barrier) {
		c.call(&e.Call)
		c.string(&e.ID)
		signed(c, &e.Counter)
		signed(c, &e.Timeout)
		c.tasks(&e.Tasks)
		c.flags(&e.Recoverable)
	}),
	KindCancelBarrier:   fields(func(c *coder, e *CancelBarrier) { c.call(&e.Call); c.string(&e.ID); signed(c, &e.Counter) }),
	KindGetAliveTasks:   fields(func(c *coder, e *GetAliveTasks) { c.call(&e.Call); c.tasks(&e.Tasks); c.value(&e.Word) }),
	KindSuspect:         fields((*coder).suspect),
	kindOldSuspect:      fields(func(c *coder, e *Suspect) { e.DropsResults = true; c.suspect(e) }),
	KindWaitForAllTasks: fields(func(c *coder, e *WaitForAllTasks) { c.call(&e.Call); c.value(&e.Devices) }),

	// Events of the owner.
	kindTick:        fields(func(*coder, *Tick) {}),
	kindCancel:      fields(func(c *coder, e *Cancel) { unsigned(c, &e.Req) }),
	kindLost:        fields((*coder).lost),
	kindOldLost:     fields(func(c *coder, e *Lost) { e.DropsResults = true; c.lost(e) }),
	kindExited:      fields(func(c *coder, e *Exited) { c.lives(&e.Tasks) }),
	kindDeparted:    fields(func(c *coder, e *Departed) { c.lives(&e.Tasks) }),
	kindOldDeparted: fields(func(c *coder, e *Departed) { e.DropsResults = true; c.lives(&e.Tasks) }),
	kindAcknowledge: fields(func(c *coder, e *Acknowledge) {
		unsigned(c, &e.Requester)
		unsigned(c, &e.Watermark)
		c.flags(&e.Farewell)
	}),
	kindOpenEpoch: fields(func(c *coder, e *OpenEpoch) {
		unsigned(c, &e.Service)
		c.jobs(&e.Jobs)
		c.checkEpoch(*e)
	}),
	kindStop:   fields(func(*coder, *Stop) {}),
	kindResume: fields(func(*coder, *Resume) {}),
}

// checkEpoch refuses an epoch that could not be opened: the machine would panic over it, and a
// damaged record must not do that.
func (c *coder) checkEpoch(e OpenEpoch) {
	if !c.reading || c.err != nil || e.Jobs == nil {
		return
	}
	if err := ValidateJobs(e.Jobs); err != nil {
		c.fail(err)
	}
}

// registerTask lists the fields of a registration. Next is in the record, because replay must
// open the epoch with the same incarnation.
func (c *coder) registerTask(e *RegisterTask) {
	c.call(&e.Call)
	c.flags(&e.Recoverable)
	unsigned(c, &e.Next)
}

// suspect lists the fields of a suspicion; DropsResults is told by the kind.
func (c *coder) suspect(e *Suspect) {
	c.call(&e.Call)
	c.life(&e.Peer)
	c.flags(&e.Hard)
	c.string(&e.Evidence)
}

// lost lists the fields of a verdict, with the evidence that clients were told.
func (c *coder) lost(e *Lost) {
	list(c, &e.Tasks, func(l *Loss) {
		c.life(&l.Life)
		c.string(&l.Evidence)
	})
}

// call writes the part that all calls have. A request id and a service incarnation take no bytes
// where a call does not give them. The service incarnation must be in the record: a call of
// another epoch is refused, in replay as well.
func (c *coder) call(p *Call) {
	id, service := p.ID != RequestID{}, p.Service != 0
	c.flags(&id, &service)
	unsigned(c, &p.Req)
	if id {
		unsigned(c, &p.ID.Requester)
		unsigned(c, &p.ID.Number)
		unsigned(c, &p.ID.Watermark)
	}
	if service {
		unsigned(c, &p.Service)
	}
	c.task(&p.Task)
	unsigned(c, &p.Incarnation)
	p.Replayed = p.Replayed || c.reading
}

func (c *coder) lives(p *[]serry.Life) { list(c, p, c.life) }

// life writes a task and its incarnation.
func (c *coder) life(l *serry.Life) {
	c.task(&l.Task)
	unsigned(c, &l.Incarnation)
}
