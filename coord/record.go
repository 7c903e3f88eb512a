package coord

import (
	"errors"
	"fmt"
)

// AppendRecord appends the journal's form of an event to b: what [Machine.Journaled] said after a
// Step, and the machine's time then. Equal events give equal bytes. Large values are handed to
// aside, which says how to call them; nil keeps them in the record.
func AppendRecord(b []byte, at Time, ev Event, aside func(value []byte) Ref) []byte {
	c := &coder{b: make([]byte, 0, 128), aside: aside}
	kind := kindOf(ev)
	c.now(&at)
	c.byte((*byte)(&kind))
	c.event(kind, ev)
	if c.err != nil {
		panic(fmt.Sprintf("coord: %T cannot be written: %v", ev, c.err))
	}
	return seal(b, c.b)
}

// ReadRecord reads the first record of b. Calls are marked as [Call.Replayed]. It takes any bytes,
// and never more memory than a multiple of their number, or of the largest cluster.
func ReadRecord(b []byte, fetch func(Ref) ([]byte, error)) (at Time, ev Event, rest []byte, err error) {
	body, rest, err := unseal(b, "journal record")
	if err != nil {
		return 0, nil, nil, fmt.Errorf("record: %w", err)
	}
	c := &coder{b: body, reading: true, fetch: fetch}
	var kind eventKind
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

// An eventKind says in a record which event it is. Numbers are never used again for another.
type eventKind byte

const (
	kindRegisterTask      eventKind = 1
	kindHeartbeat         eventKind = 2
	kindShutdownTask      eventKind = 3
	kindResetTask         eventKind = 4
	kindReportError       eventKind = 5
	kindPollForError      eventKind = 6
	kindInsertKeyValue    eventKind = 7
	kindIncrementKeyValue eventKind = 8
	kindDeleteKeyValue    eventKind = 9
	kindSwapKeyValue      eventKind = 10
	kindBarrier           eventKind = 11
	kindCancelBarrier     eventKind = 12
	kindGetAliveTasks     eventKind = 13
	kindOldSuspect        eventKind = 14 // with DropsResults, as kindOldLost and kindOldDeparted
	kindWaitForAllTasks   eventKind = 15
	kindTick              eventKind = 16
	kindCancel            eventKind = 17
	kindOldLost           eventKind = 18
	kindExited            eventKind = 19
	kindOldDeparted       eventKind = 20
	kindAcknowledge       eventKind = 21
	kindOpenEpoch         eventKind = 22
	kindStop              eventKind = 23
	kindResume            eventKind = 24
	kindSuspect           eventKind = 25
	kindLost              eventKind = 26
	kindDeparted          eventKind = 27
)

// kindOf finds the kind of an event that can change state; others have no record.
func kindOf(ev Event) eventKind {
	switch ev := ev.(type) {
	case RegisterTask:
		return kindRegisterTask
	case Heartbeat:
		return kindHeartbeat
	case ShutdownTask:
		return kindShutdownTask
	case ResetTask:
		return kindResetTask
	case ReportError:
		return kindReportError
	case PollForError:
		return kindPollForError
	case InsertKeyValue:
		return kindInsertKeyValue
	case IncrementKeyValue:
		return kindIncrementKeyValue
	case DeleteKeyValue:
		return kindDeleteKeyValue
	case SwapKeyValue:
		return kindSwapKeyValue
	case Barrier:
		return kindBarrier
	case CancelBarrier:
		return kindCancelBarrier
	case GetAliveTasks:
		return kindGetAliveTasks
	case Suspect:
		if ev.DropsResults {
			return kindOldSuspect
		}
		return kindSuspect
	case WaitForAllTasks:
		return kindWaitForAllTasks
	}
	return ownKindOf(ev)
}

// ownKindOf finds the kind of an event that only the owner sends.
func ownKindOf(ev Event) eventKind {
	switch ev := ev.(type) {
	case Tick:
		return kindTick
	case Cancel:
		return kindCancel
	case Lost:
		if ev.DropsResults {
			return kindOldLost
		}
		return kindLost
	case Exited:
		return kindExited
	case Departed:
		if ev.DropsResults {
			return kindOldDeparted
		}
		return kindDeparted
	case Acknowledge:
		return kindAcknowledge
	case OpenEpoch:
		return kindOpenEpoch
	case Stop:
		return kindStop
	case Resume:
		return kindResume
	}
	panic(fmt.Sprintf("coord: no record of %T", ev))
}

// fields lists the fields of an event, to be written from ev or to be read.
func fields[E Event](c *coder, ev Event, of func(*E)) Event {
	var e E
	if !c.reading {
		e = ev.(E)
	}
	of(&e)
	if !c.reading {
		return ev
	}
	return e
}

// event writes or reads the fields of a call; ev is nil when reading.
func (c *coder) event(kind eventKind, ev Event) Event {
	switch kind {
	case kindRegisterTask:
		return fields(c, ev, c.registerTask)
	case kindHeartbeat:
		return fields(c, ev, func(e *Heartbeat) { c.call(&e.Call) })
	case kindShutdownTask:
		return fields(c, ev, func(e *ShutdownTask) { c.call(&e.Call); c.flags(&e.Recoverable) })
	case kindResetTask:
		return fields(c, ev, func(e *ResetTask) { c.call(&e.Call) })
	case kindReportError:
		return fields(c, ev, func(e *ReportError) { c.call(&e.Call); signed(c, &e.Code); c.string(&e.Text) })
	case kindPollForError:
		return fields(c, ev, func(e *PollForError) { c.call(&e.Call) })
	case kindInsertKeyValue:
		return fields(c, ev, func(e *InsertKeyValue) {
			c.call(&e.Call)
			c.string(&e.Key)
			c.value(&e.Value)
			c.flags(&e.Overwrite)
		})
	case kindIncrementKeyValue:
		return fields(c, ev, func(e *IncrementKeyValue) { c.call(&e.Call); c.string(&e.Key); signed(c, &e.By) })
	case kindDeleteKeyValue:
		return fields(c, ev, func(e *DeleteKeyValue) { c.call(&e.Call); c.string(&e.Key) })
	case kindSwapKeyValue:
		return fields(c, ev, func(e *SwapKeyValue) {
			c.call(&e.Call)
			c.string(&e.Key)
			c.value(&e.Old)
			c.value(&e.New)
		})
	case kindBarrier:
		return fields(c, ev, func(e *Barrier) {
			c.call(&e.Call)
			c.string(&e.ID)
			signed(c, &e.Counter)
			signed(c, &e.Timeout)
			c.tasks(&e.Tasks)
			c.flags(&e.Recoverable)
		})
	case kindCancelBarrier:
		return fields(c, ev, func(e *CancelBarrier) { c.call(&e.Call); c.string(&e.ID); signed(c, &e.Counter) })
	case kindGetAliveTasks:
		return fields(c, ev, func(e *GetAliveTasks) { c.call(&e.Call); c.tasks(&e.Tasks); c.value(&e.Word) })
	case kindSuspect, kindOldSuspect:
		return fields(c, ev, func(e *Suspect) {
			e.DropsResults = kind == kindOldSuspect
			c.call(&e.Call)
			c.task(&e.Peer)
			unsigned(c, &e.Life)
			c.flags(&e.Hard)
			c.string(&e.Evidence)
		})
	case kindWaitForAllTasks:
		return fields(c, ev, func(e *WaitForAllTasks) { c.call(&e.Call); c.value(&e.Devices) })
	}
	return c.ownEvent(kind, ev)
}

// ownEvent writes or reads the fields of an event that only the owner sends.
func (c *coder) ownEvent(kind eventKind, ev Event) Event {
	switch kind {
	case kindTick:
		return Tick{}
	case kindCancel:
		return fields(c, ev, func(e *Cancel) { unsigned(c, &e.Req) })
	case kindLost, kindOldLost:
		return fields(c, ev, func(e *Lost) {
			e.DropsResults = kind == kindOldLost
			list(c, &e.Tasks, func(l *Loss) {
				c.task(&l.Task)
				unsigned(c, &l.Incarnation)
				c.string(&l.Evidence)
			})
		})
	case kindExited:
		return fields(c, ev, func(e *Exited) { c.departures(&e.Tasks) })
	case kindDeparted, kindOldDeparted:
		return fields(c, ev, func(e *Departed) {
			e.DropsResults = kind == kindOldDeparted
			c.departures(&e.Tasks)
		})
	case kindAcknowledge:
		return fields(c, ev, func(e *Acknowledge) {
			unsigned(c, &e.Requester)
			unsigned(c, &e.Watermark)
			c.flags(&e.Farewell)
		})
	case kindOpenEpoch:
		return fields(c, ev, func(e *OpenEpoch) {
			unsigned(c, &e.Service)
			c.jobs(&e.Jobs)
			c.checkEpoch(*e)
		})
	case kindStop:
		return Stop{}
	case kindResume:
		return Resume{}
	}
	if c.err == nil {
		c.failf("event of kind %d", kind)
	}
	return nil
}

// checkEpoch refuses an epoch that could not be opened.
func (c *coder) checkEpoch(e OpenEpoch) {
	if !c.reading || c.err != nil || e.Jobs == nil {
		return
	}
	if err := ValidateJobs(e.Jobs); err != nil {
		c.fail(err)
	}
}

func (c *coder) registerTask(e *RegisterTask) {
	c.call(&e.Call)
	c.flags(&e.Recoverable)
	unsigned(c, &e.Next)
}

// call writes what calls have in common. What most calls do not say costs them no bytes.
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

func (c *coder) departures(p *[]Departure) {
	list(c, p, func(d *Departure) {
		c.task(&d.Task)
		unsigned(c, &d.Incarnation)
	})
}
