package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/serry-dev/serry/internal/harmless"
)

// A format is how a command prints its answer.
type format string

// The formats.
const (
	asTable format = ""     // for people, at most as wide as the terminal
	asWide  format = "wide" // for people, with every column and nothing cut
	asJSON  format = "json"
	asYAML  format = "yaml"
)

// outputVersion is the version of what -o json and -o yaml print, for commands whose answer has none
// of its own. It changes when a field changes its meaning or goes.
const outputVersion = 1

// A printer prints the answer of a command.
type printer struct {
	format format
	out    io.Writer
	errors io.Writer // what is not an answer goes there
	paper
}

// A paper is what the answer is written on.
type paper struct {
	terminal bool
	colour   bool
	width    int // in columns
}

const plainWidth = 80 // where there is no terminal to ask

// define adds the flag that chooses the format.
func (p *printer) define(cmd *cobra.Command) {
	cmd.Flags().StringVarP((*string)(&p.format), "output", "o", "", "`format` of the answer: json, yaml, or wide for a table that is not cut")
	// The error is one of a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(
		[]cobra.Completion{"json", "yaml", "wide"}, cobra.ShellCompDirectiveNoFileComp))
}

// open checks the flag and looks at what it is written on.
func (p *printer) open(cmd *cobra.Command) error {
	if !slices.Contains([]format{asTable, asWide, asJSON, asYAML}, p.format) {
		return fmt.Errorf("--output %q: want json, yaml or wide", p.format)
	}
	p.out, p.errors = cmd.OutOrStdout(), cmd.ErrOrStderr()
	p.paper = paperOf(p.out)
	return nil
}

// paperOf finds out what w is. Colours are for terminals whose user did not ask for none.
func paperOf(w io.Writer) paper {
	p := paper{width: plainWidth}
	fd := terminal(w)
	if fd < 0 {
		return p
	}
	p.terminal = true
	p.colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ); err == nil && size.Col > 0 {
		p.width = int(size.Col)
	}
	return p
}

// object prints v as JSON or YAML, and says whether one of them was wanted.
func (p *printer) object(v any) (done bool, err error) {
	switch p.format {
	case asJSON:
		e := json.NewEncoder(escaping{p.out})
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return true, e.Encode(v)
	case asYAML:
		return true, writeYAML(p.out, v)
	}
	return false, nil
}

// orEmpty makes a list that scripts see as one, whatever is in it.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// line prints one of many objects: JSON on a line of its own, YAML as a document of its own.
func (p *printer) line(v any) (done bool, err error) {
	switch p.format {
	case asJSON:
		e := json.NewEncoder(escaping{p.out})
		e.SetEscapeHTML(false)
		return true, e.Encode(v)
	case asYAML:
		fmt.Fprintln(p.out, "---")
		return p.object(v)
	}
	return false, nil
}

// A colour is that of a word on a terminal.
type colour string

const (
	plain  colour = ""
	red    colour = "\x1b[31m"
	green  colour = "\x1b[32m"
	yellow colour = "\x1b[33m"
	bold   colour = "\x1b[1m"
	normal        = "\x1b[0m"
)

func (p paper) paint(c colour, text string) string {
	if !p.colour || c == plain || text == "" {
		return text
	}
	return string(c) + text + normal
}

// A column is that of a table.
type column struct {
	title string
	most  int  // characters that are shown, unless the table is wide; 0: all
	right bool // numbers stand at the right
}

// A cell is a word in a table.
type cell struct {
	text string
	colour
}

// A table is printed with its columns in line. The last one takes the room that is left.
type table struct {
	columns []column
	rows    [][]cell
}

func (t *table) add(cells ...cell) { t.rows = append(t.rows, cells) }

// texts makes cells without colour.
func texts(all ...string) []cell {
	cells := make([]cell, len(all))
	for i, s := range all {
		cells[i].text = s
	}
	return cells
}

// table prints t. Nothing in a cell may break its line.
func (p *printer) table(t *table) error {
	head := make([]cell, len(t.columns))
	for i, c := range t.columns {
		head[i] = cell{c.title, bold}
	}
	widths := p.widths(t)
	w := bufio.NewWriterSize(p.out, 64<<10)
	p.row(w, t.columns, widths, head)
	for _, r := range t.rows {
		p.row(w, t.columns, widths, r)
	}
	return w.Flush()
}

const gap = "  " // between columns

// widths finds how wide each column is.
func (p *printer) widths(t *table) []int {
	widths := make([]int, len(t.columns))
	left := p.width
	for i, c := range t.columns {
		widths[i] = utf8.RuneCountInString(c.title)
		for _, r := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(r[i].text))
		}
		if p.format == asWide {
			continue
		}
		if c.most > 0 {
			widths[i] = min(widths[i], max(c.most, len(c.title)))
		}
		if i == len(t.columns)-1 {
			widths[i] = min(widths[i], max(left, len(c.title)))
		}
		left -= widths[i] + len(gap)
	}
	return widths
}

func (p *printer) row(w *bufio.Writer, columns []column, widths []int, cells []cell) {
	last := len(cells) - 1
	for last > 0 && cells[last].text == "" {
		last-- // no spaces at the end of a line
	}
	for i, c := range cells[:last+1] {
		text := fit(oneLine(c.text), widths[i])
		pad := widths[i] - utf8.RuneCountInString(text)
		if columns[i].right {
			spaces(w, pad)
		}
		w.WriteString(p.paint(c.colour, text))
		if i == last {
			break
		}
		if !columns[i].right {
			spaces(w, pad)
		}
		w.WriteString(gap)
	}
	w.WriteByte('\n')
}

func spaces(w *bufio.Writer, n int) {
	for range n {
		w.WriteByte(' ')
	}
}

// oneLine makes a text that another program chose safe to print.
func oneLine(s string) string { return harmless.Line(s) }

// printable is oneLine for the text of an error, which may have several lines: a name that a file or a
// server chose can be part of it.
func printable(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = oneLine(strings.ReplaceAll(line, "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

// An escaping writer takes JSON, and writes the characters that steer a terminal, or the direction of text on it, as
// escapes (SEC-112). Package json does so for those below U+0020.
type escaping struct{ io.Writer }

// Write implements [io.Writer]. An encoder writes whole documents, so no character is in two parts.
func (e escaping) Write(b []byte) (int, error) {
	if _, err := e.Writer.Write(harmless.JSON(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// fit cuts a text to a number of characters.
func fit(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	if width <= 3 {
		return strings.Repeat(".", max(0, width))
	}
	r := []rune(s)
	return string(r[:width-3]) + "..."
}
