package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/wire"
)

// whyHelp is what serry why --help says first.
const whyHelp = `Say what went wrong first, what was seen of it, who waits for whom, what each
rank did last, where in their code the ranks on this host are, and which ranks
have saved after a preemption notice.

Of a job that serry run has started it says which ranks keep the others waiting,
since when, where in their code they are, and how sure that is: sure, likely or
possible. What it knows of processes it has from the launchers of their hosts.

A wait that takes more than twice as long as usual, and 2 s at least, is late.
It has stalled when the ranks that it waits for make no call for 5 s, and is
stuck when that lasts for 2 min, or 10 min where no such wait has ended yet. At
the end of a job it is never called stuck: healthy jobs save there.

Exit status: 0 no failure; 1 a failure, or ranks are stuck; 3 ranks have stalled,
or a process was refused; 2 a mistake in the command line.

With --collectives it asks the processes of the job themselves which operations
of serry's own collectives they run: who entered which one when, the first that
differs, and the rank that is slowest. --svg draws that; --pytorch writes files
for python -m torch.distributed.flight_recorder.fr_trace.

With --transfers it asks them which transfers of buffers have not ended, and which
process each of them waits for, and why. Exit status 3: one has waited for 30 s.

With --all it says below that what it said before: the first failures of former
attempts, ranks that kept the others waiting, and how long that lasted.

With --watch it is shown in place on a terminal, until q or Ctrl-C. Where the
output is no terminal it is a line for each change, and with -o json an object for
each change, on a line of its own.

About what is over it says what it would have said at the end: with --ended, or
where no service is named and none runs, about the job of serry run that ended
last on this host; with --journal from the journal of a service, a copy of it, or
what serry replay --export has written.`

func newWhy() *cobra.Command {
	q := &query{}
	var flights collectivesCommand
	var transfers, all, watch bool
	var every time.Duration
	var past pastWhy
	cmd := q.command(&cobra.Command{
		Use:   "why",
		Short: "Say what went wrong first, and who waits for whom",
		Long:  whyHelp,
		Example: `  serry why
  serry why --all
  serry why --watch | tee what-happened.txt
  serry why --collectives --svg flight.svg
  serry why --transfers
  serry why --ended
  serry why --journal incident.journal`,
		Args: noArguments,
	}, func(ctx context.Context, r *remote, _ []string) error {
		if transfers {
			return q.transfers(ctx, r)
		}
		if flights.wanted || flights.svg != "" || flights.torch != "" {
			return q.collectives(ctx, r, flights)
		}
		if watch {
			return q.watchWhy(ctx, r, all, every)
		}
		evidence, err := r.wholeEvidence(ctx)
		if err != nil {
			return err
		}
		return q.answer(evidence.Status, judged(evidence, all, r.address))
	})
	past.all = &all
	past.define(cmd)
	past.instead(cmd, q)
	cmd.Flags().BoolVar(&all, "all", false, "say also what was said before: of former attempts, and of ranks that kept the others waiting")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "say it again and again: in place on a terminal, else a line for each change")
	cmd.Flags().DurationVar(&every, "every", viewPause, "how often to ask, with --watch")
	cmd.Flags().BoolVar(&flights.wanted, "collectives", false, "say which collective operations the ranks run, and where they differ")
	cmd.Flags().BoolVar(&transfers, "transfers", false, "say which transfers of buffers have not ended, and what they wait for")
	cmd.Flags().StringVar(&flights.svg, "svg", "", "with --collectives: draw the operations into this `file`")
	cmd.Flags().StringVar(&flights.torch, "pytorch", "", "with --collectives: write the records into this `folder`, for the analyser of PyTorch")
	return cmd
}

// judged is what evidence of a service at an address means, with the stacks of ranks on this host where they say more.
func judged(e diagnose.Evidence, all bool, address string) diagnose.Report {
	report := diagnose.Judge(e)
	if report.WantsStacks() {
		e.Stacks = stacksHere(e.Status, address)
		report = diagnose.Judge(e)
	}
	if all {
		report.Older = diagnose.Older(e, report)
	}
	return report
}

// dash is the mark of a line in a list.
var dash = cell{text: "- "}

// explain prints a report for people.
func (p *printer) explain(s wire.Status, r diagnose.Report) {
	c := red
	switch {
	case r.Stage == diagnose.Late:
		c = yellow
	case r.Healthy:
		c = green
	}
	p.wrap(cell{}, cell{r.Verdict, c})
	if f := r.First; f != nil && !f.Recovered {
		if f.Followed > 0 {
			p.wrap(cell{}, cell{text: fmt.Sprintf("%d more ranks have failed since", f.Followed)})
		}
		if f.Told {
			p.wrap(cell{}, cell{text: "all ranks were told of it: this attempt is over"})
		}
	}
	for _, l := range r.Evidence {
		p.wrap(cell{text: fmt.Sprintf("  %-9s", l.Word)}, cell{text: l.Text})
	}
	for _, text := range r.Advice {
		p.wrap(dash, cell{text: text})
	}
	for _, f := range newest(r.Refused) {
		if f.Text != r.Verdict {
			p.wrap(dash, cell{text: f.Text})
		}
	}
	for _, w := range r.Waits {
		fmt.Fprintln(p.out)
		p.wrap(cell{}, cell{fmt.Sprintf("%s: %d of %d ranks are there, the first since %s", diagnose.Place(w.Barrier), w.Arrived, w.Members, diagnose.Ago(w.ForSeconds)), bold})
		p.blamed(s, w)
	}
	p.lastCalls(r)
	p.places(r)
	for _, save := range r.Saves {
		fmt.Fprintln(p.out)
		p.saved(s, save)
	}
	p.older(r)
	if r.AsOf != "" {
		p.wrap(cell{}, cell{text: "this is as of " + r.AsOf})
	}
}

// lastCalls lists what ranks did last, where no failure explains what they do, and where all of them call the
// service as they did before, there is nothing to explain.
func (p *printer) lastCalls(r diagnose.Report) {
	quiet := slices.ContainsFunc(r.Calls, func(c diagnose.Calls) bool { return c.Quiet() })
	if len(r.Calls) == 0 || r.Kind == diagnose.Failed || r.Kind == diagnose.Stopped || !quiet && r.Stage == diagnose.OnTime {
		return
	}
	fmt.Fprintln(p.out)
	p.wrap(cell{}, cell{"last calls, those of the quietest ranks first", bold})
	for _, c := range r.Calls {
		p.wrap(dash, cell{text: c.Text})
	}
}

// places lists where in their code the ranks of this host are.
func (p *printer) places(r diagnose.Report) {
	if len(r.At) == 0 {
		return
	}
	fmt.Fprintln(p.out)
	p.wrap(cell{}, cell{"ranks on this host, those that are alone first", bold})
	for _, at := range r.At {
		p.wrap(dash, cell{text: at.Text})
	}
}

// older lists what was said before, where that was asked for.
func (p *printer) older(r diagnose.Report) {
	if r.Older == nil {
		return
	}
	fmt.Fprintln(p.out)
	if len(r.Older) == 0 {
		p.wrap(cell{}, cell{text: "nothing else was said before"})
		return
	}
	p.wrap(cell{}, cell{"what was said before, the oldest first", bold})
	for _, text := range r.Older {
		p.wrap(dash, cell{text: text})
	}
}

// newest are the last few refusals: a person reads the newest, and serry watch --past has all.
func newest(all []diagnose.Refusal) []diagnose.Refusal { return all[max(0, len(all)-5):] }

// blamed lists whom a barrier waits for, those of whom the same can be said together.
func (p *printer) blamed(s wire.Status, w diagnose.Wait) {
	var order []string
	by := make(map[string][]string)
	for _, b := range w.On {
		if by[b.Why] == nil {
			order = append(order, b.Why)
		}
		by[b.Why] = append(by[b.Why], b.Task)
	}
	for _, why := range order {
		said := why
		if len(by[why]) > 1 {
			said = ofSeveral(why)
		}
		p.wrap(dash, cell{text: diagnose.RanksText(s, by[why]) + " " + said})
	}
	if w.More > 0 {
		p.wrap(dash, cell{text: fmt.Sprintf("and %d more", w.More)})
	}
}

// ofSeveral is what is said of one rank, said of several.
func ofSeveral(why string) string {
	verb, rest, _ := strings.Cut(why, " ")
	switch verb {
	case "has":
		verb = "have"
	case "is":
		verb = "are"
	case "waits":
		verb = "wait"
	}
	return verb + " " + rest
}

func (p *printer) saved(status wire.Status, s diagnose.Save) {
	name := "preemption"
	if s.Round > 0 {
		name = fmt.Sprintf("preemption, round %d", s.Round)
	}
	steps := strings.Trim(fmt.Sprint(s.Steps), "[]")
	p.wrap(cell{}, cell{fmt.Sprintf("%s: %d of %d ranks have saved, at step %s", name, s.Saved, s.Of, steps), bold})
	if len(s.Missing) > 0 {
		p.wrap(dash, cell{text: "no receipt of " + s.Unconfirmed(status)})
	}
}

// wrap prints a text in lines that fit, the first one after a mark and the others below it.
func (p *printer) wrap(mark, body cell) {
	begin, line := p.paint(mark.colour, mark.text), ""
	for word := range strings.FieldsSeq(oneLine(body.text)) {
		if line != "" && len(mark.text)+len(line)+1+len(word) > p.width && p.format != asWide {
			fmt.Fprintln(p.out, begin+p.paint(body.colour, line))
			begin, line = strings.Repeat(" ", len(mark.text)), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	fmt.Fprintln(p.out, begin+p.paint(body.colour, line))
}
