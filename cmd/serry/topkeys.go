package main

import (
	"context"
	"fmt"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/wire"
)

const (
	keyEscape = 0x1b
	keyEnter  = '\r'
	keyLine   = '\n'
	keyDelete = 0x7f
	keyBack   = 0x08

	maxFilter = 64
)

// press takes a key. Arrows come as three bytes: escape, bracket, letter.
func (v *topView) press(ctx context.Context, key byte) (quit bool) {
	switch {
	case v.escaped == 1 && key == '[':
		v.escaped = 2
		return false
	case v.escaped == 2:
		v.escaped = 0
		v.move(map[byte]int{'A': -1, 'B': 1}[key])
		return false
	}
	v.escaped = 0
	if key == keyEscape {
		v.escaped = 1
		v.panel, v.typing = nil, false
		return false
	}
	if v.typing {
		v.typed(ctx, key)
		return false
	}
	return v.command(ctx, key)
}

func (v *topView) move(by int) { v.chosen = max(0, v.chosen+by) }

// again asks for the ranks of another order or filter at once, where all are not known.
func (v *topView) again(ctx context.Context) {
	v.chosen = 0
	if v.status.Picked != nil {
		_ = v.ask(ctx) // the picture shows the error, and the next question has it, too
	}
}

// typed takes a key of the filter.
func (v *topView) typed(ctx context.Context, key byte) {
	was := v.filter
	defer func() {
		if v.filter != was {
			v.again(ctx)
		}
	}()
	switch {
	case key == keyEnter || key == keyLine:
		v.typing = false
	case (key == keyDelete || key == keyBack) && v.filter != "":
		v.filter = v.filter[:len(v.filter)-1]
	case key >= ' ' && key < keyDelete && len(v.filter) < maxFilter:
		v.filter += string(rune(key))
	}
}

// command does what a key stands for.
func (v *topView) command(ctx context.Context, key byte) (quit bool) {
	switch key {
	case 'q':
		return true
	case 'j':
		v.move(1)
	case 'k':
		v.move(-1)
	case 's':
		v.sort = (v.sort + 1) % len(sorts)
		v.again(ctx)
	case '/':
		v.typing, v.filter = true, ""
		v.again(ctx)
	case 'w':
		v.panel = v.why(ctx)
	case 'l':
		v.panel = v.past()
	case keyEnter, keyLine:
		v.panel = v.details(ctx)
	}
	return false
}

// why is what serry why says. It rests on all ranks.
func (v *topView) why(ctx context.Context) []string {
	status, report := v.status, v.report
	if status.Picked != nil {
		e, err := v.remote.evidence(ctx)
		if err != nil {
			return []string{v.cut(err.Error(), 0)}
		}
		status, report = e.Status, diagnose.Judge(e)
	}
	return v.drawn(func(p *printer) error {
		p.explain(status, report)
		return nil
	})
}

// past is what happened lately, the newest first: that must fit.
func (v *topView) past() []string {
	lines := []string{v.paint(bold, "what happened lately, the newest first")}
	for i := len(v.status.Notes) - 1; i >= 0; i-- {
		n := v.status.Notes[i]
		at := v.status.Clock.Add(-time.Duration((v.status.UpSeconds - n.AtSeconds) * float64(time.Second)))
		stamp := at.Local().Format(time.TimeOnly)
		lines = append(lines, stamp+"  "+v.cut(diagnose.NoteText(v.status, n), len(stamp)+2))
	}
	return lines
}

// details shows all that is known of the chosen rank, and where in its code it is.
func (v *topView) details(ctx context.Context) []string {
	rows, before, _ := v.rows()
	at := v.chosen - before
	if at < 0 || at >= len(rows) {
		return nil
	}
	r := rows[at]
	t := r.task
	lines := []string{
		v.paint(bold, "rank "+r.rank),
		v.cut(fmt.Sprintf("state  %s for %s", t.State, diagnose.Ago(t.ForSeconds)), 0),
		v.cut(fmt.Sprintf("host   %s, heard %s", hostOf(t.From), beatText(t.HeardSeconds)), 0),
	}
	if r.step >= 0 {
		lines = append(lines, v.cut(fmt.Sprintf("step   %d, %d behind", r.step, r.lag), 0))
	}
	if r.Doing != "" {
		lines = append(lines, v.cut("does   "+r.Doing, 0))
	}
	return append(append(lines, ""), v.stackOf(ctx, t.Task)...)
}

// stackOf asks the launcher of a rank, or the rank itself, where it is.
func (v *topView) stackOf(ctx context.Context, task string) []string {
	id, err := serry.ParseTaskID(task)
	if err != nil {
		return nil
	}
	ids := []serry.TaskID{id}
	g, err := v.remote.gather(ctx, wire.Inquiry{Kind: wire.StacksEvidence, Tasks: ids, Wait: farPatience})
	if err != nil {
		return []string{v.cut("stack  "+err.Error(), 0)}
	}
	found := farReadings(g, ids)
	if len(found) == 0 {
		return []string{v.cut("stack  no launcher answers for it"+silentText(g), 0)}
	}
	return v.drawn(func(p *printer) error {
		c := &stacksCommand{}
		c.printer = *p
		for _, group := range fold(found) {
			c.printGroup(group, "stack")
		}
		return nil
	})
}

// A statusView is what serry status --watch shows on a terminal.
type statusView struct {
	*topView
}

// ask brings the picture up to date.
func (v statusView) ask(ctx context.Context) error {
	s, err := v.remote.status(ctx, wire.StatusQuery{})
	if v.failed = err; err != nil {
		if v.remote.broken.Err() != nil || ctx.Err() != nil {
			return err
		}
		return nil
	}
	v.status = s
	return nil
}

// lines draws the status, and what is wrong with the service.
func (v statusView) lines(columns, height int) []string {
	v.width = columns
	if v.status.Version == 0 {
		return []string{v.cut(fmt.Sprintf("%s: %v", v.remote.address, v.failed), 0)}
	}
	all := v.drawn(func(p *printer) error { return p.showStatus(v.remote.address, v.status) })
	if v.failed != nil {
		all = append([]string{v.paint(red, v.cut(fmt.Sprintf("%v; showing what was known before", v.failed), 0))}, all...)
	}
	return v.fitted(all, height)
}

// press knows one key: the one that ends the view.
func (v statusView) press(_ context.Context, key byte) (quit bool) { return key == 'q' }
