package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
)

// A line of the table says one thing of every scene. cell returns a text, and whether the bar is kept.
type line struct {
	label, bar string
	cell       func(r result) (text string, kept bool)
}

var lines = []line{
	{"steps alone", "", func(r result) (string, bool) { return fmt.Sprint(r.alone.steps), true }},
	{"steps beside strangers", "", func(r result) (string, bool) { return fmt.Sprint(r.beside.steps), true }},
	{"p50 of a step alone", "", func(r result) (string, bool) { return ms(r.alone.p50), true }},
	{"p50 beside strangers", "", func(r result) (string, bool) { return ms(r.beside.p50), true }},
	{"p99 of a step alone", "", func(r result) (string, bool) { return ms(r.alone.p99), true }},
	{"p99 beside strangers", fmt.Sprintf("<= %dx", maxSlower), func(r result) (string, bool) {
		return ms(r.beside.p99), r.beside.err == nil && r.beside.p99 <= maxSlower*r.alone.p99
	}},
	{"most memory of the server alone", "", func(r result) (string, bool) { return mib(r.alone.peak), true }},
	{"most memory beside strangers", "<= " + mib(maxPeak), func(r result) (string, bool) { return mib(r.beside.peak), r.beside.peak <= maxPeak }},
	{"log of the server alone", "", func(r result) (string, bool) { return fmt.Sprint(r.alone.log, " B"), true }},
	{"log beside strangers", "<= " + mib(maxLog), func(r result) (string, bool) { return fmt.Sprint(r.beside.log, " B"), r.beside.log <= maxLog }},
	{"the job exits with", "0", func(r result) (string, bool) {
		if r.beside.err != nil {
			return "a failure", false
		}
		return "0", true
	}},
	{"values that strangers stored", "some", func(r result) (string, bool) { return some(r, byWriting, r.beside.seen.written) }},
	{"calls of strangers that were refused", "some", func(r result) (string, bool) { return some(r, byRefusals, r.beside.seen.refused) }},
	{"and that were not", "0", func(r result) (string, bool) { return fmt.Sprint(r.beside.seen.let), r.beside.seen.let == 0 }},
	{"lines that a person read", "some", func(r result) (string, bool) { return some(r, byReading, r.beside.seen.lines) }},
	{"with words of strangers", "some", func(r result) (string, bool) { return some(r, byReading, r.beside.seen.theirs) }},
	{"a line steered the terminal", "no", func(r result) (string, bool) {
		if r.beside.seen.spoiled != "" {
			return "yes", false
		}
		return "no", true
	}},
}

func ms(v float64) string { return fmt.Sprintf("%.2f ms", v) }
func mib(n int64) string  { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// some is a number that is the proof of one scene: there it must not be 0. The others do not have it.
func some(r result, p proof, n int) (string, bool) {
	if r.proof != p {
		return "-", true
	}
	return fmt.Sprint(n), n > 0
}

// show prints the table. The error says what does not hold.
func show(w io.Writer, all []result) (err error) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range all {
		fmt.Fprintf(t, "\t%s", r.name)
	}
	fmt.Fprintln(t, "\tbar")
	for _, l := range lines {
		fmt.Fprint(t, l.label)
		for _, r := range all {
			text, kept := l.cell(r)
			if !kept {
				text += " MISS"
				err = errors.Join(err, fmt.Errorf("%s: %s: %s", r.name, l.label, text))
			}
			fmt.Fprintf(t, "\t%s", text)
		}
		fmt.Fprintf(t, "\t%s\n", l.bar)
	}
	if failed := t.Flush(); failed != nil {
		return failed
	}
	for _, r := range all {
		for _, text := range []string{r.beside.seen.first, r.beside.seen.spoiled} {
			if text != "" {
				err = errors.Join(err, fmt.Errorf("%s: %s", r.name, text))
			}
		}
		err = errors.Join(err, r.beside.err)
	}
	return err
}
