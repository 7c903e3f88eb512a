package form

import (
	"fmt"
	"html"
	"slices"
	"strings"

	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/mesh/internal/notation"
)

// maxCells bounds a drawing; more cannot be read anyway.
const maxCells = 1 << 14

// DrawSVG shows which device holds which slice of an array as an SVG document, a colour
// per device. Where more than two dimensions are split, the others become
// panels.
func DrawSVG(s *mesh.Sharding, shape []int) (string, error) {
	pic, err := newPicture(s, shape)
	if err != nil {
		return "", err
	}
	if len(pic.blocks) > maxCells {
		return "", errorf(mesh.ErrInvalid, "%d slices are too many to draw, at most %d: use the table", len(pic.blocks), maxCells)
	}
	down, across := pic.axesOfGrid()
	return pic.svg(down, across, fmt.Sprintf("%s of %s, mesh %s", s.Spec(), notation.Tuple(shape), axesText(s.Mesh()))), nil
}

// The measures of a drawing, in pixels.
const (
	cellWide, cellHigh = 72, 36
	marginLeft         = 90
	marginTop          = 60
	panelGap           = 40
)

func (pic *picture) svg(down, across int, title string) string {
	rows, columns := pic.waysOf(down), pic.waysOf(across)
	panels := max(len(pic.blocks)/(rows*columns), 1)
	var body strings.Builder
	panelOf := map[string]int{}
	for _, b := range pic.blocks {
		rest := slices.Clone(b.block)
		row, column := 0, 0
		if down >= 0 {
			row, rest[down] = b.block[down], 0
		}
		if across >= 0 {
			column, rest[across] = b.block[across], 0
		}
		key := notation.Tuple(rest)
		if _, known := panelOf[key]; !known {
			panelOf[key] = len(panelOf)
		}
		top := marginTop + panelOf[key]*(rows*cellHigh+panelGap)
		drawCell(&body, b, marginLeft+column*cellWide, top+row*cellHigh)
		if column == 0 && down >= 0 {
			label(&body, marginLeft-6, top+row*cellHigh+cellHigh/2+4, "end", rangeOf(b, down))
		}
		if row == 0 && across >= 0 {
			label(&body, marginLeft+column*cellWide+cellWide/2, top-6, "middle", rangeOf(b, across))
		}
		if row == 0 && column == 0 && panels > 1 {
			label(&body, 8, top-22, "start", pic.panelName(b, down, across))
		}
	}
	wide := marginLeft + columns*cellWide + 20
	return document(max(wide, 8*len(title)+20), marginTop+panels*(rows*cellHigh+panelGap), title, body.String())
}

// panelName says where in the other split dimensions a panel lies.
func (pic *picture) panelName(b drawnBlock, down, across int) string {
	var parts []string
	for _, d := range pic.split {
		if d != down && d != across {
			parts = append(parts, fmt.Sprintf("dimension %d: %s", d, rangeOf(b, d)))
		}
	}
	return strings.Join(parts, ", ")
}

func drawCell(out *strings.Builder, b drawnBlock, x, y int) {
	devices := listText(b.devices)
	fmt.Fprintf(out, `<g><title>%v on devices %s, tasks %s</title><rect x="%d" y="%d" width="%d" height="%d" fill="%s" stroke="#333"/>`,
		b.index, devices, listText(b.tasks), x, y, cellWide, cellHigh, hue(b.devices[0]))
	label(out, x+cellWide/2, y+cellHigh/2+4, "middle", fitText(devices, cellWide/8))
	out.WriteString("</g>\n")
}

// hue spreads numbers around the colour wheel, neighbours far apart.
func hue(n int) string {
	return fmt.Sprintf("hsl(%d,65%%,%d%%)", n*137%360, 72+n/8%3*6)
}

func label(out *strings.Builder, x, y int, anchor, text string) {
	fmt.Fprintf(out, `<text x="%d" y="%d" text-anchor="%s">%s</text>`, x, y, anchor, html.EscapeString(text))
}

func document(wide, high int, title, body string) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="monospace" font-size="12">
<title>%s</title><rect width="100%%" height="100%%" fill="#fff"/><text x="8" y="20" font-size="13">%s</text>
%s</svg>
`, wide, high, wide, high, html.EscapeString(title), html.EscapeString(title), body)
}

// DrawLinksSVG shows what a plan sends over its links as an SVG document: a
// matrix, darker where more bytes flow. ends says what the links join.
func DrawLinksSVG(ends string, links []mesh.Link) (string, error) {
	from, to := endsOf(links)
	most := 1
	for _, l := range links {
		if l.From != l.To {
			most = max(most, l.Bytes)
		}
	}
	if len(from)*len(to) > maxCells {
		return "", errorf(mesh.ErrInvalid, "%d by %d %ss are too many to draw, at most %d cells: use the table", len(from), len(to), ends, maxCells)
	}
	var body strings.Builder
	for i, f := range from {
		label(&body, marginLeft-6, marginTop+i*cellHigh+cellHigh/2+4, "end", fmt.Sprintf("%s %d", ends, f))
	}
	for i, t := range to {
		label(&body, marginLeft+i*cellWide+cellWide/2, marginTop-6, "middle", fmt.Sprintf("%s %d", ends, t))
	}
	moved := 0
	for _, l := range links {
		r, _ := slices.BinarySearch(from, l.From)
		c, _ := slices.BinarySearch(to, l.To)
		fill := "#eee" // stays where it is
		if l.From != l.To {
			moved += l.Bytes
			fill = fmt.Sprintf("hsl(210,80%%,%d%%)", 95-int(30*float64(l.Bytes)/float64(most)))
		}
		x, y := marginLeft+c*cellWide, marginTop+r*cellHigh
		fmt.Fprintf(&body, `<g><title>%s %d to %d: %d bytes in %d ranges</title><rect x="%d" y="%d" width="%d" height="%d" fill="%s" stroke="#333"/>`,
			html.EscapeString(ends), l.From, l.To, l.Bytes, l.Ranges, x, y, cellWide, cellHigh, fill)
		label(&body, x+cellWide/2, y+cellHigh/2+4, "middle", byteText(l.Bytes))
		body.WriteString("</g>\n")
	}
	title := fmt.Sprintf("%s move between %ss (down: from, across: to)", byteText(moved), ends)
	return document(max(marginLeft+len(to)*cellWide+20, 8*len(title)+20), marginTop+len(from)*cellHigh+20, title, body.String()), nil
}
