package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/topo"
	"github.com/serry-dev/serry/wire"
)

func newReplay() *cobra.Command {
	r := &replay{tasks: make(map[serry.TaskID]serry.TaskState)}
	cmd := &cobra.Command{
		Use:   "replay JOURNAL",
		Short: "Tell what happened to a job, from the journal of its service",
		Long: `Tell what happened to a job, from the journal of its service: the folder of
--store file:DIR while no server has it, a copy of the database in it, the
--data-dir of a server with --peers that does not run, even if all others are
lost, etcd:ENDPOINT,... while servers run or not, or an exported history. The
history is run through the service again, event by event, so what is told is
what the service did and answered then.

A journal begins where the service last replaced its past by a snapshot.
--export keeps it: one file, to be looked at elsewhere, or to go on with (serry
serve --restore).

--web shows the job on a page instead, with a slider over the time: verdict, ranks,
waits and events as of then (docs/PAGE.md).`,
		Example: `  serry replay /var/lib/serry
  serry replay --export incident.journal etcd:host1:2379,host2:2379

  # on a page, with a slider over the time
  serry replay --web incident.journal

  # servers with --peers: the store of one of them, on its host
  serry replay etcd:unix:/var/lib/serry/client.sock

  # the same when no majority of them is left, after that one has ended
  serry replay --export last.journal /var/lib/serry`,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.printer.open(cmd); err != nil {
				return err
			}
			if err := r.checkPage(cmd); err != nil {
				return seeHelp(cmd, err)
			}
			return failed(r.run(cmd, args[0]))
		},
	}
	r.printer.define(cmd)
	cmd.Flags().BoolVar(&r.calls, "calls", false, "tell of every call and its answer, too")
	cmd.Flags().StringVar(&r.export, "export", "", "write the journal to a `file`, and tell nothing")
	r.page.define(cmd.Flags(), "`address` of a page that shows the job as of any time of the journal, until SIGINT; a free port of this host where none is given")
	cmd.Flags().Lookup("web").NoOptDefVal = pageHere
	r.etcd.defineEtcd(cmd.Flags())
	return cmd
}

// A replay tells a history.
type replay struct {
	printer
	calls  bool
	export string
	page   pageSettings
	etcd   storeSettings

	begun  server.Beginning
	jobs   []wire.JobStatus // of the present epoch
	tasks  map[serry.TaskID]serry.TaskState
	asked  map[coord.Req]string // calls without an answer yet
	moment []moment
	count  int
	last   coord.Time
	err    error // of printing
}

// A moment is a line of the timeline.
type moment struct {
	At    float64          `json:"at_seconds"`
	Note  *wire.NoteStatus `json:"note,omitempty"`
	Event string           `json:"event,omitempty"`
	Reply string           `json:"reply,omitempty"`
	Error string           `json:"error,omitempty"`
}

// history is the answer of serry replay.
type history struct {
	Version int            `json:"version"`
	Service string         `json:"service_incarnation"`
	Epoch   int            `json:"epoch"` // at the beginning
	Records int            `json:"records"`
	Seconds float64        `json:"seconds"` // of service time, at the end
	Tasks   map[string]int `json:"tasks"`   // by state, at the end
	Moments []moment       `json:"moments"`
}

// checkPage says what is wrong with the flags about a page.
func (r *replay) checkPage(cmd *cobra.Command) error {
	if r.page.listen != "" && (r.export != "" || r.calls || cmd.Flags().Changed("output")) {
		return errors.New("--web shows a journal on a page: --export, --calls and -o are for journals that are written or told")
	}
	if r.page.write {
		return errors.New("--web-write is for a job that runs: leave it out")
	}
	return r.page.check()
}

func (r *replay) run(cmd *cobra.Command, name string) error {
	ctx := cmd.Context()
	h, err := r.etcd.openHistory(ctx, name)
	if err != nil {
		return err
	}
	defer h.Close()
	if r.export != "" {
		return r.keep(ctx, h)
	}
	if r.page.listen != "" {
		if err := r.serve(cmd, h); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
	r.asked = make(map[coord.Req]string)
	if err := server.Replay(ctx, h, topo.Republished, r.begin, r.step); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if r.err != nil {
		return r.err
	}
	states := r.states()
	if done, err := r.object(history{
		Version: outputVersion, Service: fmt.Sprintf("%d", r.begun.View.Service), Epoch: r.begun.View.Epoch,
		Records: r.count, Seconds: time.Duration(r.last).Seconds(), Tasks: states, Moments: r.moment,
	}); done {
		return err
	}
	var parts []string
	for _, s := range slices.Sorted(maps.Keys(states)) {
		parts = append(parts, fmt.Sprintf("%d %s", states[s], s))
	}
	_, err = fmt.Fprintf(r.out, "%s  the journal ends after %d records: %s\n", stamp(r.last), r.count, strings.Join(parts, ", "))
	return err
}

// keep writes a journal to a file, which is whole or not there.
func (r *replay) keep(ctx context.Context, h *store.History) error {
	f, err := os.CreateTemp(filepath.Dir(r.export), ".serry-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // once it is renamed there is none
	if err := errors.Join(store.Export(ctx, f, h), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), r.export)
}

// states counts the tasks by state.
func (r *replay) states() map[string]int {
	count := make(map[string]int)
	for _, s := range r.tasks {
		count[s.String()]++
	}
	return count
}

// begin tells where the history begins.
func (r *replay) begin(b server.Beginning) {
	r.begun, r.last = b, b.View.Now
	for _, t := range b.View.Tasks {
		r.tasks[t.Task] = t.State
	}
	r.jobs = wire.NewStatus(wire.Report{Status: coord.Status{View: b.View}}, wire.StatusQuery{}).Jobs
	if r.format == asTable || r.format == asWide {
		_, r.err = fmt.Fprintf(r.out, "%s  the journal begins: attempt %d with %d ranks, %d keys\n", stamp(r.last), b.View.Epoch, len(b.View.Tasks), b.View.Keys)
	}
}

// step tells of one event.
func (r *replay) step(s server.Step) {
	r.count++
	r.last = s.At
	if r.calls {
		r.tell(moment{Event: eventText(s.Event)})
	}
	if c, ok := coord.CallOf(s.Event); ok && r.calls {
		r.asked[c.Req] = eventText(s.Event)
	}
	for _, e := range s.Effects {
		switch e := e.(type) {
		case coord.Note:
			n := wire.NewNote(0, s.At, e)
			r.tell(moment{Note: &n})
		case coord.Changed:
			r.tasks[e.Task] = e.State
		case coord.Opened:
			clear(r.tasks)
			r.jobs = nil
			for _, j := range e.Jobs {
				r.jobs = append(r.jobs, wire.JobStatus{Name: j.Name, Tasks: j.Tasks})
				for i := range j.Tasks {
					r.tasks[serry.TaskID{Job: j.Name, Index: i}] = serry.Disconnected
				}
			}
		case coord.Reply:
			r.reply(e)
		}
	}
}

// reply tells how a call ended.
func (r *replay) reply(e coord.Reply) {
	if !r.calls {
		return
	}
	m := moment{Reply: r.asked[e.Req]}
	delete(r.asked, e.Req)
	if e.Err != nil {
		m.Error = e.Err.Error()
	}
	r.tell(m)
}

// tell prints a moment, or keeps it for the answer as one object.
func (r *replay) tell(m moment) {
	m.At = time.Duration(r.last).Seconds()
	if r.format != asTable && r.format != asWide {
		r.moment = append(r.moment, m)
		return
	}
	text, c := m.Event, plain
	switch {
	case m.Note != nil:
		text = diagnose.NoteText(wire.Status{Jobs: r.jobs}, *m.Note)
		if m.Note.Error != "" {
			c = red
		}
	case m.Reply != "" && m.Error != "":
		text = "  " + m.Reply + " = " + m.Error
	case m.Reply != "":
		text = "  " + m.Reply + " = ok"
	}
	if _, err := fmt.Fprintf(r.out, "%s  %s\n", stamp(r.last), r.paint(c, r.cut(text, len(stamp(r.last))+2))); err != nil && r.err == nil {
		r.err = err
	}
}

// stamp is how a moment is printed: service time.
func stamp(t coord.Time) string { return fmt.Sprintf("%10.3fs", time.Duration(t).Seconds()) }

// eventText says what happened, in a few words.
func eventText(ev coord.Event) string {
	name := strings.TrimPrefix(fmt.Sprintf("%T", ev), "coord.")
	var parts []string
	if c, ok := coord.CallOf(ev); ok && !c.Task.IsZero() {
		parts = append(parts, c.Task.String())
	}
	switch ev := ev.(type) {
	case coord.IncrementKeyValue:
		parts = append(parts, fmt.Sprintf("%q by %d", ev.Key, ev.By))
	case coord.Barrier:
		parts = append(parts, fmt.Sprintf("%q %d", ev.ID, ev.Counter))
	case coord.CancelBarrier:
		parts = append(parts, fmt.Sprintf("%q %d", ev.ID, ev.Counter))
	case coord.ReportError:
		parts = append(parts, fmt.Sprintf("%q", ev.Text))
	case coord.Suspect:
		parts = append(parts, ev.Peer.Task.String(), ev.Evidence)
	case coord.Lost:
		for _, l := range ev.Tasks {
			parts = append(parts, strings.TrimSuffix(fmt.Sprintf("%v: %s", l.Task, l.Evidence), ": "))
		}
	case coord.Departed:
		parts = append(parts, departures(ev.Tasks)...)
	case coord.Exited:
		parts = append(parts, departures(ev.Tasks)...)
	default:
		if key := reflect.ValueOf(ev).FieldByName("Key"); key.IsValid() { // of the other calls on keys
			parts = append(parts, fmt.Sprintf("%q", key.String()))
		}
	}
	return strings.Join(append([]string{name}, parts...), " ")
}

func departures(list []serry.Life) (names []string) {
	for _, d := range list {
		names = append(names, d.Task.String())
	}
	return names
}
