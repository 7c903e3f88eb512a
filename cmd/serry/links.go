package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/wire"
)

func newLinks() *cobra.Command {
	q := &query{}
	return q.command(&cobra.Command{
		Use:   "links [task]...",
		Short: "Show which tasks are connected with each other, and how well",
		Long: `Show the links between the tasks of a job, as each task sees them: its peer, how
many connections there are, the bytes that went both ways, how many packets had to be
sent again, and how long the peer has been silent. The tasks are asked through the
service; those that open no links, such as tasks of jax, are left out. Of a
task with very many links, those whose peers are silent are shown first, and the rest
counted.

Exit status: 0 all tasks that have links answered; 1 there are none, or one did not
answer in time (--timeout); 2 a mistake in the command line.`,
		Example: `  serry links
  serry links 3 7
  serry links -o wide`,
		ValidArgsFunction: q.completeTasks,
	}, func(ctx context.Context, r *remote, args []string) error {
		ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM) // so that its keys are removed
		defer stop()
		return q.links(ctx, r, args)
	})
}

// links asks the tasks, and prints what they say.
func (q *query) links(ctx context.Context, r *remote, args []string) error {
	s, err := r.status(ctx, wire.StatusQuery{Tasks: true})
	if err != nil {
		return err
	}
	names, err := findTasks(s.Tasks, args)
	if err != nil {
		return err
	}
	survey := &linkSurvey{remote: r, reports: make(map[serry.Life]link.Report)}
	found, err := survey.open(ctx)
	if err != nil {
		return err
	}
	lives := slices.DeleteFunc(found, func(l serry.Life) bool {
		return !connected(s.Tasks, l) || len(names) > 0 && !slices.Contains(names, l.Task.String())
	})
	if len(lives) == 0 {
		return hinted{errors.New("no task has opened links"), "programs do so by link.Open"}
	}
	if err := survey.run(ctx, lives); err != nil {
		return err
	}
	return errors.Join(append(survey.bad, q.showLinks(survey.list(lives), oneJob(s.Tasks), r.timeout.String()))...)
}

// connected says whether a life is there.
func connected(tasks []wire.TaskStatus, l serry.Life) bool {
	return slices.ContainsFunc(tasks, func(t wire.TaskStatus) bool {
		return t.State == wire.StateConnected && t.Task == l.Task.String() && t.Incarnation == uint64(l.Incarnation)
	})
}

// askAtOnce is how many tasks are asked at the same time: all their reports must fit into one message of the service.
const askAtOnce = 128

// A linkSurvey asks tasks for reports on their links (CL-TRN-33).
type linkSurvey struct {
	remote  *remote
	after   int64 // revision of the keys up to which all is known
	pending map[serry.Life]bool
	reports map[serry.Life]link.Report
	silent  []serry.Life
	bad     []error // reports that cannot be read
}

// open finds the lives that have links, and removes reports that another caller has left behind. From then on every
// report that appears is new.
func (s *linkSurvey) open(ctx context.Context) ([]serry.Life, error) {
	for {
		c, err := result[coord.Changes](s.remote.call(ctx, coord.WatchKeys{Dir: link.KeyDir, After: -1}))
		if err != nil {
			return nil, err
		}
		s.after = c.Revision
		var lives, left []serry.Life
		for _, ch := range c.Changes {
			switch life, report, ok := link.ParseKey(ch.Key); {
			case ok && report:
				left = append(left, life)
			case ok:
				lives = append(lives, life)
			}
		}
		if len(left) == 0 {
			slices.SortFunc(lives, serry.Life.Compare)
			return lives, nil
		}
		if err := s.each(left, func(l serry.Life) error { return s.remove(ctx, link.ReportKey(l)) }); err != nil {
			return nil, err
		}
	}
}

// run asks all lives, so many at a time.
func (s *linkSurvey) run(ctx context.Context, lives []serry.Life) error {
	for some := range slices.Chunk(lives, askAtOnce) {
		err := s.ask(ctx, some)
		if err := errors.Join(err, s.clean(context.WithoutCancel(ctx), some)); err != nil {
			return err
		}
	}
	return nil
}

// ask asks some lives, and waits for their reports. Those that do not answer in time stay pending.
func (s *linkSurvey) ask(ctx context.Context, lives []serry.Life) error {
	s.pending = make(map[serry.Life]bool, len(lives))
	for _, l := range lives {
		s.pending[l] = true
	}
	if err := s.each(lives, func(l serry.Life) error { return s.question(ctx, l) }); err != nil {
		return err
	}
	patience, cancel := s.remote.brief(ctx)
	defer cancel()
	for len(s.pending) > 0 {
		c, err := result[coord.Changes](s.remote.wait(patience, coord.WatchKeys{Dir: link.KeyDir, After: s.after}))
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case patience.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		s.after = c.Revision
		for _, ch := range c.Changes {
			if err := s.take(ctx, ch); err != nil {
				return err
			}
		}
	}
	return nil
}

// question asks a life. If another caller has asked and the life has not seen it, its report will do for both.
func (s *linkSurvey) question(ctx context.Context, l serry.Life) error {
	if err := s.remote.Create(ctx, link.AskKey(l), nil); err != nil && !errors.Is(err, serry.ErrExists) {
		return err
	}
	return nil
}

// take takes one change of a key.
func (s *linkSurvey) take(ctx context.Context, ch coord.Change) error {
	life, report, ok := link.ParseKey(ch.Key)
	switch {
	case !ok || !s.pending[life]:
	case ch.Deleted && !report: // it has closed its links, or is gone
		delete(s.pending, life)
	case ch.Deleted: // another caller has read it
		return s.question(ctx, life)
	case report:
		delete(s.pending, life)
		r, err := link.ParseReport(ch.Value)
		if err != nil { // the others have something to say
			s.bad = append(s.bad, fmt.Errorf("%v: %w", life.Task, err))
			return nil
		}
		s.reports[life] = r
	}
	return nil
}

// clean removes the keys of this caller, and notes which lives are silent.
func (s *linkSurvey) clean(ctx context.Context, lives []serry.Life) error {
	for _, l := range lives {
		if s.pending[l] {
			s.silent = append(s.silent, l)
		}
	}
	return s.each(lives, func(l serry.Life) error {
		if s.pending[l] {
			return s.remove(ctx, link.AskKey(l))
		}
		return s.remove(ctx, link.ReportKey(l))
	})
}

func (s *linkSurvey) remove(ctx context.Context, key string) error {
	_, err := s.remote.call(ctx, coord.DeleteKeyValue{Key: key})
	return err
}

// each does something for all lives at the same time.
func (s *linkSurvey) each(lives []serry.Life, do func(serry.Life) error) error {
	errs := make([]error, len(lives))
	var all sync.WaitGroup
	for i, l := range lives {
		all.Go(func() { errs[i] = do(l) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err // one says it: the others are mostly the same
		}
	}
	return nil
}

// A linkList is the answer of serry links.
type linkList struct {
	Version int          `json:"version"`
	Tasks   []linkedTask `json:"tasks"`
	Silent  []string     `json:"silent"` // tasks that did not answer
}

// A linkedTask is a task with its links.
type linkedTask struct {
	Task        string `json:"task"`
	Incarnation uint64 `json:"incarnation,string"`
	link.Report
}

// list puts the answers in the order of the tasks.
func (s *linkSurvey) list(lives []serry.Life) linkList {
	list := linkList{Version: outputVersion, Tasks: []linkedTask{}, Silent: []string{}}
	for _, l := range lives {
		if r, ok := s.reports[l]; ok {
			list.Tasks = append(list.Tasks, linkedTask{l.Task.String(), uint64(l.Incarnation), r})
		}
	}
	for _, l := range s.silent {
		list.Silent = append(list.Silent, l.Task.String())
	}
	return list
}

// showLinks prints the answers. That some are missing is an error, after what is there.
func (q *query) showLinks(list linkList, oneJob bool, patience string) error {
	done, err := q.object(list)
	if !done {
		err = q.table(linkTable(list, oneJob, q.format == asWide))
		for _, t := range list.Tasks {
			if more := t.Links - len(t.Worst); more > 0 {
				fmt.Fprintf(q.errors, "serry: rank %s has %d more links\n", diagnose.RankOf(t.Task, oneJob), more)
			}
		}
	}
	if err == nil && len(list.Silent) > 0 {
		err = fmt.Errorf("no answer within %s from %s", patience, rankNames(list.Silent, oneJob))
	}
	return err
}

// linkTable has a row for each end of a link.
func linkTable(list linkList, oneJob, wide bool) *table {
	t := &table{columns: []column{
		{title: "RANK", right: oneJob}, {title: "PEER", right: oneJob}, {title: "STATE"}, {title: "LANES", right: true}, {title: "SENT", right: true},
		{title: "RECEIVED", right: true}, {title: "RESENT", right: true}, {title: "SILENT", right: true}, {title: "UP", right: true},
	}}
	if wide {
		t.columns = append(t.columns, column{title: "TRIP", right: true}, column{title: "WAITING", right: true},
			column{title: "FRAMES SENT", right: true}, column{title: "FRAMES RECEIVED", right: true}, column{title: "INCARNATION"}, column{title: "ADDRESS"})
	}
	for _, task := range list.Tasks {
		slices.SortFunc(task.Worst, comparePeers)
		for _, f := range task.Worst {
			t.add(linkRow(diagnose.RankOf(task.Task, oneJob), diagnose.RankOf(f.Peer, oneJob), f)[:len(t.columns)]...)
		}
	}
	return t
}

// linkRow has all columns of a link.
func linkRow(rank, peer string, f link.Figures) []cell {
	state := cell{"up", green}
	if f.Suspected {
		state = cell{"suspected", red}
	}
	row := append(texts(rank, peer), state)
	return append(row, texts(fmt.Sprint(f.Lanes), bytesText(int64(f.BytesSent)), bytesText(int64(f.BytesReceived)), fmt.Sprint(f.Retransmits),
		diagnose.Ago(f.SilentSeconds), diagnose.Ago(f.UpSeconds), fmt.Sprintf("%.0f us", f.TripMicros), fmt.Sprint(f.Waiting),
		fmt.Sprint(f.FramesSent), fmt.Sprint(f.FramesReceived), incarnation(f.Incarnation), f.Address)...)
}

// comparePeers orders links by their peers, of which a number is not compared as a text.
func comparePeers(a, b link.Figures) int {
	x, _ := serry.ParseTaskID(a.Peer)
	y, _ := serry.ParseTaskID(b.Peer)
	return x.Compare(y)
}

// rankNames names ranks: ranks 3-4 7.
func rankNames(names []string, oneJob bool) string {
	text := diagnose.TaskRanges(names)
	if first, _ := serry.ParseTaskID(names[0]); oneJob {
		text = strings.ReplaceAll(text, first.Job+"/", "")
	}
	if len(names) == 1 {
		return "rank " + text
	}
	return "ranks " + text
}
