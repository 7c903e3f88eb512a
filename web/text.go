package web

import (
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/harmless"
)

// A digest is a picture in words, for browsers without JavaScript: the verdict, the waits, the ranks in trouble and what happened
// lately (D-WEB-21).
type digest struct {
	Title    string
	Verdict  string
	Healthy  bool
	Evidence []diagnose.HangLine
	Advice   []string
	Waits    []digestWait
	Ranks    []RankRow // in trouble, the worst first
	More     int       // ranks in trouble that are left out
	Goodput  string
	Slow     []string
	Lately   []happening // the newest first
}

type digestWait struct {
	Place, For, Missing string
	Arrived, Members    int
}

const (
	digestRanks  = 50
	digestLately = 20
	digestSlow   = 3
)

func newDigest(p *picture, past []happening) digest {
	s := p.Status
	d := digest{
		Title:   fmt.Sprintf("attempt %d, up %s, %s", s.Epoch, diagnose.Ago(s.UpSeconds), countsText(p)),
		Verdict: p.report.Verdict, Healthy: p.report.Healthy, Evidence: p.report.Evidence, Advice: p.report.Advice,
		Slow: diagnose.StragglerLines(s, digestSlow),
	}
	if p.past {
		d.Title += ", as of " + clockText(s.Clock)
	}
	if s.Goodput != nil {
		d.Goodput = diagnose.GoodputText(s.Goodput)
	}
	for _, b := range s.Barriers {
		d.Waits = append(d.Waits, digestWait{diagnose.Place(b.ID), diagnose.Ago(b.ForSeconds), diagnose.MissingText(s, b), b.Arrived, b.Members})
	}
	var troubled []int
	for i, m := range p.marks {
		if m.Mark != diagnose.MarkWaiting && m.Mark != diagnose.MarkAtWork && m.Mark != diagnose.MarkLeft {
			troubled = append(troubled, i)
		}
	}
	p.sort(troubled, "trouble")
	d.More = max(0, len(troubled)-digestRanks)
	for _, i := range troubled[:min(len(troubled), digestRanks)] {
		d.Ranks = append(d.Ranks, p.row(i))
	}
	for i := len(past) - 1; i >= 0 && len(d.Lately) < digestLately; i-- {
		d.Lately = append(d.Lately, past[i])
	}
	return d
}

// clockText is a time of day. Where a journal does not tell it (see [TimeLine]) it is how long after the beginning of the service that was.
func clockText(t time.Time) string {
	if t.UTC().Year() == 1970 {
		return "+" + diagnose.Ago(time.Duration(t.UnixNano()).Seconds())
	}
	return t.Local().Format(time.TimeOnly)
}

// countsText says how many ranks are in which state.
func countsText(p *picture) string {
	var parts []string
	for _, state := range states {
		if n := p.Status.Counts[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	return fmt.Sprintf("%d ranks: %s", p.Status.Size, strings.Join(parts, ", "))
}

// write writes the digest as text. Nothing in it steers a terminal.
func (d *digest) write(out io.Writer) {
	var b strings.Builder
	line := func(format string, args ...any) { b.WriteString(harmless.Line(fmt.Sprintf(format, args...)) + "\n") }
	line("serry  %s", d.Title)
	line("%s", d.Verdict)
	for _, l := range d.Evidence {
		line("  %-9s%s", l.Word, l.Text)
	}
	for _, text := range d.Advice {
		line("- %s", text)
	}
	for _, text := range d.Slow {
		line("slow: %s", text)
	}
	if d.Goodput != "" {
		line("goodput %s", d.Goodput)
	}
	for i, w := range d.Waits {
		if i == 0 {
			b.WriteString("\nwaiting\n")
		}
		line("  %s  %d/%d  %s  missing %s", w.Place, w.Arrived, w.Members, w.For, w.Missing)
	}
	if len(d.Ranks) > 0 {
		b.WriteString("\nranks in trouble\n")
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, r := range d.Ranks {
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", r.Mark, harmless.Line(r.Rank), harmless.Line(r.Host), harmless.Line(r.Doing))
		}
		_ = t.Flush() // into memory
		if d.More > 0 {
			line("  and %d more", d.More)
		}
	}
	for i, e := range d.Lately {
		if i == 0 {
			b.WriteString("\nlately\n")
		}
		line("  %s  %s", clockText(e.Time), e.Text)
	}
	_, _ = io.WriteString(out, b.String()) // a reader that is gone needs no answer
}

// plainPage is the page without JavaScript. Package template makes text of the job harmless in it.
var plainPage = template.Must(template.New("plain").Funcs(template.FuncMap{
	"line":  harmless.Line,
	"clock": clockText,
}).Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="refresh" content="10"><title>serry</title><link rel="stylesheet" href="style.css"></head>
<body class="plain"><main>
<h1>serry</h1><p>{{.Title | line}}</p>
<section><h2>Verdict</h2><p class="{{if .Healthy}}well{{else}}bad{{end}}"><strong>{{.Verdict | line}}</strong></p>
{{with .Evidence}}<dl>{{range .}}<dt>{{.Word | line}}</dt><dd>{{.Text | line}}</dd>{{end}}</dl>{{end}}
{{range .Advice}}<p>{{. | line}}</p>{{end}}{{range .Slow}}<p>{{. | line}}</p>{{end}}{{with .Goodput}}<p>goodput {{. | line}}</p>{{end}}</section>
<section><h2>Waiting now</h2>{{if .Waits}}<table><tr><th>at<th>there<th>for<th>missing</tr>
{{range .Waits}}<tr><td>{{.Place | line}}<td>{{.Arrived}}/{{.Members}}<td>{{.For}}<td>{{.Missing | line}}</tr>{{end}}</table>{{else}}<p>No rank waits at a barrier.</p>{{end}}</section>
<section><h2>Ranks in trouble</h2>{{if .Ranks}}<table><tr><th>state<th>rank<th>host<th>does</tr>
{{range .Ranks}}<tr><td>{{.Mark}}<td>{{.Rank | line}}<td>{{.Host | line}}<td>{{.Doing | line}}</tr>{{end}}</table>{{with .More}}<p>and {{.}} more</p>{{end}}{{else}}<p>None.</p>{{end}}</section>
<section><h2>Lately</h2>{{if .Lately}}<table>{{range .Lately}}<tr><td>{{.Time | clock}}<td>{{.Text | line}}</tr>{{end}}</table>{{else}}<p>Nothing.</p>{{end}}</section>
</main></body></html>
`))

// plainForm asks for the token.
var plainForm = template.Must(template.New("form").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>serry</title><link rel="stylesheet" href="style.css"></head>
<body class="plain"><main><h1>serry</h1>{{with .}}<p class="bad">{{.}}</p>{{end}}
<form method="post" action="plain"><label>Token, the end of the address that serry has printed <input name="token" type="password" autocomplete="off" autofocus></label> <button>Show the job</button></form>
</main></body></html>
`))

// writePlainForm answers with the form. Under no-referrer a browser would send it with the origin null, which is what other sites may send,
// too; under same-origin the server sees its own origin, and other sites still see nothing.
func writePlainForm(w http.ResponseWriter, text string) {
	w.Header().Set("Referrer-Policy", "same-origin")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusUnauthorized)
	_ = plainForm.Execute(w, text) // a reader that is gone needs no answer
}

// plain serves the page without JavaScript.
func (s *Server) plain(w http.ResponseWriter, r *http.Request) {
	if p, _ := s.picture(w, r); p != nil {
		d := newDigest(p, s.happenings(p))
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = plainPage.Execute(w, d) // a reader that is gone needs no answer
	}
}

// front serves the page to browsers and text to others, such as curl.
func (s *Server) front(files fs.FS) http.HandlerFunc {
	page := assets(files)
	text := s.access.ask(func(w http.ResponseWriter, r *http.Request) {
		if p, _ := s.picture(w, r); p != nil {
			d := newDigest(p, s.happenings(p))
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			d.write(w)
		}
	})
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), "text/html") {
			r.SetPathValue("file", "index.html")
			page.ServeHTTP(w, r)
			return
		}
		text.ServeHTTP(w, r)
	}
}
