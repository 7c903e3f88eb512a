package collective

import (
	"fmt"
	"hash/fnv"
	"html"
	"io"
	"strings"
	"time"
)

// Sizes of the picture, in pixels, and how much it shows.
const (
	svgWidth  = 1200
	svgLeft   = 150 // of it for the names of ranks
	svgRow    = 22
	svgTop    = 40
	svgMost   = 20_000 // bars
	svgLeast  = 1.5    // width of a bar
	svgLetter = 7      // width of a letter
)

// A chart is a picture in the making.
type chart struct {
	strings.Builder
	from time.Time
	span time.Duration
	bad  uint64 // the operation that diverges, or 0
}

// WriteSVG draws the flight: a row for each rank, a bar for each operation from its beginning to its end, with the time that it
// waited for its slowest peer in a lighter shade. The first operation that diverges is red, and operations under way have no
// right end. The title of a bar has its facts.
func (f *Flight) WriteSVG(w io.Writer) error {
	tracks := f.drawn()
	c := &chart{from: f.At, span: time.Microsecond}
	if d := f.Divergence(); d != nil {
		c.bad = d.Seq
	}
	for _, t := range tracks {
		for _, r := range t.Records {
			if r.Began.Before(c.from) {
				c.from = r.Began
			}
		}
	}
	c.span = max(c.span, f.At.Sub(c.from))
	height := svgTop + svgRow*(len(tracks)+1)
	fmt.Fprintf(c, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", svgWidth, height)
	fmt.Fprintf(c, `<text x="4" y="16">%s</text>`+"\n", html.EscapeString(f.headline()))
	for i := range tracks {
		c.row(&tracks[i], svgTop+i*svgRow, f.At)
	}
	c.axis(svgTop + svgRow*len(tracks))
	c.WriteString("</svg>\n")
	_, err := io.WriteString(w, c.String())
	return err
}

// headline is the first line of the outline, cut to the width.
func (f *Flight) headline() string {
	line, _, _ := strings.Cut(f.String(), "\n")
	line = f.Clique + ": " + line
	if most := svgWidth / svgLetter; len(line) > most {
		line = strings.ToValidUTF8(line[:most], "") + "…"
	}
	return line
}

// drawn is the tracks with as many of their last records as the picture has room for.
func (f *Flight) drawn() []Track {
	tracks := make([]Track, len(f.Tracks))
	for i, t := range f.Tracks {
		if most := max(svgMost/len(f.Tracks), 1); len(t.Records) > most {
			t.Records = t.Records[len(t.Records)-most:]
		}
		tracks[i] = t
	}
	return tracks
}

func (c *chart) x(t time.Time) float64 {
	return svgLeft + (svgWidth-svgLeft-10)*float64(t.Sub(c.from))/float64(c.span)
}

func (c *chart) row(t *Track, y int, now time.Time) {
	name := fmt.Sprintf("rank %d (%s)", t.Rank, t.Task)
	fmt.Fprintf(c, `<text x="4" y="%d">%s</text>`+"\n", y+15, html.EscapeString(name))
	if t.Silent != "" {
		fmt.Fprintf(c, `<text x="%d" y="%d" fill="#888">%s</text>`+"\n", svgLeft, y+15, html.EscapeString(t.Silent))
	}
	for i := range t.Records {
		c.bar(&t.Records[i], y, now)
	}
}

func (c *chart) bar(r *Record, y int, now time.Time) {
	end, edge := r.Ended, ""
	if end.IsZero() {
		end, edge = now, ` stroke="#000" stroke-dasharray="2"`
	}
	if r.All && r.Seq == c.bad {
		edge = ` stroke="#d00" stroke-width="2"`
	}
	left := c.x(r.Began)
	width := max(c.x(end)-left, svgLeast)
	waited := min(width*float64(r.Waited)/float64(max(end.Sub(r.Began), 1)), width)
	fmt.Fprintf(c, `<g><title>%s</title><rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"%s/>`, html.EscapeString(r.title()), left, y+3, width, svgRow-6, colour(r.Kind), edge)
	if waited >= 1 {
		fmt.Fprintf(c, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="#fff" fill-opacity="0.5"/>`, left, y+3, waited, svgRow-6)
	}
	c.WriteString("</g>\n")
}

// title is the facts of a record in one line.
func (r *Record) title() string {
	text := fmt.Sprintf("%d: %s, %s", r.Seq, r.Op, r.Outcome)
	if r.Algorithm != "" {
		text += ", " + r.Algorithm
	}
	if !r.Ended.IsZero() {
		text += fmt.Sprintf(", %v", r.Ended.Sub(r.Began))
	}
	if r.Slowest >= 0 && r.Waited > 0 {
		text += fmt.Sprintf(", waited %v for rank %d", r.Waited, r.Slowest)
	}
	if len(r.Waiting) > 0 {
		text += ", waits for " + ranksText(r.Waiting)
	}
	return text
}

// colour is one for each kind of operation, and never red, which marks a divergence.
func colour(kind string) string {
	h := fnv.New32a()
	io.WriteString(h, kind)
	return fmt.Sprintf("hsl(%d,45%%,55%%)", 40+h.Sum32()%280)
}

func (c *chart) axis(y int) {
	const ticks = 5
	for i := range ticks + 1 {
		at := c.span * time.Duration(i) / ticks
		x := c.x(c.from.Add(at))
		anchor := "middle"
		if i == ticks {
			anchor = "end"
		}
		fmt.Fprintf(c, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#ccc"/><text x="%.1f" y="%d" text-anchor="%s" fill="#666">%v</text>`+"\n",
			x, svgTop, x, y, x, y+15, anchor, at.Round(c.span/1000+1))
	}
}
