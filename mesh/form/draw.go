package form

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/mesh/internal/notation"
)

// A Look says how pictures are drawn. The zero value is for a terminal of 80
// columns without colours.
type Look struct {
	Width int  // columns; 0 means 80
	Rows  int  // lines of a table; 0 means 64, negative means all
	Color bool // paint by device, with terminal escapes
}

func (l Look) width() int { return max(cmp.Or(l.Width, 80), 40) }

func (l Look) rows(n int) int {
	if l.Rows < 0 {
		return n
	}
	return min(n, cmp.Or(l.Rows, 64))
}

// Draw shows in text which device holds which slice of an array: a grid where at most
// two dimensions are split and it fits, else a table with a line per slice.
func Draw(s *mesh.Sharding, shape []int, look Look) (string, error) {
	pic, err := newPicture(s, shape)
	if err != nil {
		return "", err
	}
	head := fitText(fmt.Sprintf("%s of %s, shards of %s, mesh %s", s.Spec(), notation.Tuple(shape), notation.Tuple(pic.shard), axesText(s.Mesh())), look.width())
	if body, ok := pic.grid(look); ok {
		return head + "\n" + body, nil
	}
	return head + "\n" + pic.table(look), nil
}

// DrawLinks shows in text what a plan sends over its links: a matrix where it
// fits, else the links with most bytes. ends says what they join, such as
// "task".
func DrawLinks(ends string, links []mesh.Link, look Look) string {
	total, moved := 0, 0
	for _, l := range links {
		total += l.Bytes
		if l.From != l.To {
			moved += l.Bytes
		}
	}
	head := fitText(fmt.Sprintf("%s move between %ss, %s stay", byteText(moved), ends, byteText(total-moved)), look.width())
	if body, ok := matrix(ends, links, look); ok {
		return head + "\n" + body
	}
	return head + "\n" + linkTable(ends, links, moved, look)
}

// A picture is what drawings are made of: the distinct blocks in row-major
// order, each with its devices.
type picture struct {
	shard  []int // shape of the data on each device
	ways   []int // blocks per dimension
	split  []int // dimensions that are cut
	blocks []drawnBlock
}

type drawnBlock struct {
	block   []int // number along each dimension
	index   mesh.Index
	devices []int
	tasks   []int // ascending
}

func newPicture(s *mesh.Sharding, shape []int) (*picture, error) {
	shards, err := s.Shards(shape)
	if err != nil {
		return nil, err
	}
	pic := &picture{ways: make([]int, len(shape))}
	if pic.shard, err = s.ShardShape(shape); err != nil {
		return nil, err
	}
	for d, n := range shape {
		pic.ways[d] = n / max(pic.shard[d], 1)
		if pic.ways[d] > 1 {
			pic.split = append(pic.split, d)
		}
	}
	slices.SortStableFunc(shards, func(a, b mesh.Shard) int { return a.Index.Compare(b.Index) })
	for i, sh := range shards {
		if i == 0 || !slices.Equal(sh.Index, shards[i-1].Index) {
			pic.blocks = append(pic.blocks, drawnBlock{block: pic.number(sh.Index), index: sh.Index})
		}
		b := &pic.blocks[len(pic.blocks)-1]
		b.devices, b.tasks = append(b.devices, int(sh.Device)), append(b.tasks, int(sh.Task))
	}
	for i := range pic.blocks {
		b := &pic.blocks[i]
		slices.Sort(b.tasks)
		b.tasks = slices.Compact(b.tasks)
	}
	return pic, nil
}

// number counts where a block stands along each dimension.
func (pic *picture) number(x mesh.Index) []int {
	block := make([]int, len(x))
	for d, r := range x {
		block[d] = r.Start / max(pic.shard[d], 1)
	}
	return block
}

func axesText(m *mesh.Mesh) string {
	return notation.JoinFunc(m.Axes(), ", ", func(a mesh.Axis) string { return notation.Quote(a.Name) + ": " + strconv.Itoa(a.Size) })
}

// axesOfGrid says which of the last two split dimensions run down and across; -1 is none.
func (pic *picture) axesOfGrid() (down, across int) {
	down, across = -1, -1
	for _, d := range pic.split[max(len(pic.split)-2, 0):] {
		if d == len(pic.ways)-1 || down >= 0 {
			across = d
		} else {
			down = d
		}
	}
	return down, across
}

// grid draws the blocks as cells; false where they do not fit.
func (pic *picture) grid(look Look) (string, bool) {
	if len(pic.split) > 2 || len(pic.blocks) == 0 {
		return "", false
	}
	down, across := pic.axesOfGrid()
	rows, columns := pic.waysOf(down), pic.waysOf(across)
	if rows > look.rows(rows) || columns > look.width() {
		return "", false
	}
	cells := make([]string, len(pic.blocks))
	wide, label := 3, 0
	for i, b := range pic.blocks {
		cells[i] = listText(b.devices)
		wide = max(wide, len(cells[i]))
		if across >= 0 {
			wide = max(wide, len(rangeOf(b, across)))
		}
		if down >= 0 {
			label = max(label, len(rangeOf(b, down)))
		}
	}
	if label+2+columns*(wide+3) > look.width() {
		return "", false
	}
	return pic.lines(gridShape{down, across, rows, columns, wide, label}, cells, look), true
}

type gridShape struct{ down, across, rows, columns, wide, label int }

func (pic *picture) lines(g gridShape, cells []string, look Look) string {
	var out strings.Builder
	indent := strings.Repeat(" ", g.label+1)
	if g.across >= 0 {
		line := indent
		for c := range g.columns {
			line += " " + center(rangeOf(pic.blocks[c], g.across), g.wide+2)
		}
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	rule := func(left, middle, right string) {
		bar := strings.Repeat("─", g.wide+2)
		out.WriteString(indent + left + strings.Repeat(bar+middle, g.columns-1) + bar + right + "\n")
	}
	rule("┌", "┬", "┐")
	for r := range g.rows {
		if r > 0 {
			rule("├", "┼", "┤")
		}
		label := ""
		if g.down >= 0 {
			label = rangeOf(pic.blocks[r*g.columns], g.down)
		}
		fmt.Fprintf(&out, "%*s │", g.label, label)
		for c := range g.columns {
			b := pic.blocks[r*g.columns+c]
			out.WriteString(look.paint(center(cells[r*g.columns+c], g.wide+2), b.devices[0]) + "│")
		}
		out.WriteByte('\n')
	}
	rule("└", "┴", "┘")
	return out.String()
}

func (pic *picture) waysOf(dim int) int {
	if dim < 0 {
		return 1
	}
	return pic.ways[dim]
}

func rangeOf(b drawnBlock, dim int) string { return b.index[dim].String() }

// table lists the blocks with their devices and tasks.
func (pic *picture) table(look Look) string {
	rows := [][]string{{"slice", "devices", "tasks"}}
	shown := look.rows(len(pic.blocks))
	for _, b := range pic.blocks[:shown] {
		rows = append(rows, []string{b.index.String(), listText(b.devices), listText(b.tasks)})
	}
	out := columnsText(rows, look, func(row int, text string) string {
		if row == 0 {
			return text
		}
		return look.paint(text, pic.blocks[row-1].devices[0])
	})
	if rest := len(pic.blocks) - shown; rest > 0 {
		out += fmt.Sprintf("… and %d more slices\n", rest)
	}
	return out
}

// matrix draws the bytes from every end (down) to every end (across).
func matrix(ends string, links []mesh.Link, look Look) (string, bool) {
	from, to := endsOf(links)
	if len(links) == 0 || len(from) > look.rows(len(from)) || len(to)*6 > look.width() {
		return "", false
	}
	rows := make([][]string, len(from)+1)
	rows[0] = []string{"from " + ends + " \\ to"}
	for _, t := range to {
		rows[0] = append(rows[0], strconv.Itoa(t))
	}
	for i, f := range from {
		rows[i+1] = slices.Repeat([]string{"·"}, len(to)+1)
		rows[i+1][0] = strconv.Itoa(f)
	}
	for _, l := range links {
		r, _ := slices.BinarySearch(from, l.From)
		c, _ := slices.BinarySearch(to, l.To)
		rows[r+1][c+1] = byteText(l.Bytes)
	}
	out := columnsText(rows, Look{Width: 1 << 20}, nil)
	for line := range strings.Lines(out) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > look.width() {
			return "", false
		}
	}
	return out, true
}

// endsOf lists the ends that links come from and go to, in order.
func endsOf(links []mesh.Link) (from, to []int) {
	for _, l := range links {
		from, to = append(from, l.From), append(to, l.To)
	}
	slices.Sort(from)
	slices.Sort(to)
	return slices.Compact(from), slices.Compact(to)
}

// linkTable lists the links between different ends, most bytes first.
func linkTable(ends string, links []mesh.Link, moved int, look Look) string {
	sorted := slices.DeleteFunc(slices.Clone(links), func(l mesh.Link) bool { return l.From == l.To })
	slices.SortStableFunc(sorted, func(a, b mesh.Link) int { return cmp.Compare(b.Bytes, a.Bytes) })
	rows := [][]string{{"from " + ends, "to", "bytes", "ranges", "share"}}
	shown := look.rows(len(sorted))
	for _, l := range sorted[:shown] {
		share := float64(l.Bytes) / float64(max(moved, 1))
		rows = append(rows, []string{strconv.Itoa(l.From), strconv.Itoa(l.To), byteText(l.Bytes), strconv.Itoa(l.Ranges),
			fmt.Sprintf("%5.1f %% %s", 100*share, strings.Repeat("█", int(share*20+0.5)))})
	}
	out := columnsText(rows, look, nil)
	if rest := len(sorted) - shown; rest > 0 {
		out += fmt.Sprintf("… and %d more links\n", rest)
	}
	return out
}

// columnsText aligns cells in columns and cuts lines to the width. paint may
// colour a line once it is cut.
func columnsText(rows [][]string, look Look, paint func(row int, text string) string) string {
	wide := make([]int, len(rows[0]))
	for _, row := range rows {
		for c, cell := range row {
			wide[c] = max(wide[c], utf8.RuneCountInString(cell))
		}
	}
	// A long list in the middle gives way, so that what follows stays visible.
	if over := total(wide) + 2*(len(wide)-1) - look.width(); over > 0 && len(wide) == 3 {
		wide[1] = max(wide[1]-over, 12)
	}
	var out strings.Builder
	for r, row := range rows {
		var line strings.Builder
		for c, cell := range row {
			cell = fitText(cell, wide[c])
			line.WriteString(cell)
			if c < len(row)-1 {
				line.WriteString(strings.Repeat(" ", wide[c]-utf8.RuneCountInString(cell)+2))
			}
		}
		text := fitText(strings.TrimRight(line.String(), " "), look.width())
		if paint != nil {
			text = paint(r, text)
		}
		out.WriteString(text + "\n")
	}
	return out.String()
}

func total(list []int) int {
	n := 0
	for _, v := range list {
		n += v
	}
	return n
}

// paint colours text by a number, with those colours of a terminal's cube that
// are light enough to read black on.
func (l Look) paint(text string, number int) string {
	if !l.Color {
		return text
	}
	red, green, blue := 2+number%4, 2+number/4%4, 2+number/16%4
	return fmt.Sprintf("\x1b[30;48;5;%dm%s\x1b[0m", 16+36*red+6*green+blue, text)
}

// listText writes numbers as runs, without brackets.
func listText(list []int) string {
	return strings.Trim(notation.Runs(list), "()")
}

// fitText cuts a line to n columns.
func fitText(text string, n int) string {
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:max(n-1, 0)]) + "…"
}

func center(text string, n int) string {
	left := max(n-len(text), 0) / 2
	return strings.Repeat(" ", left) + text + strings.Repeat(" ", max(n-left-len(text), 0))
}

// byteText writes a number of bytes with three digits.
func byteText(n int) string {
	if n < 1024 {
		return strconv.Itoa(n) + " B"
	}
	value, unit := float64(n)/1024, 0
	for value >= 1000 && unit < 4 {
		value, unit = value/1024, unit+1
	}
	return strconv.FormatFloat(value, 'g', 3, 64) + " " + []string{"KiB", "MiB", "GiB", "TiB", "PiB"}[unit]
}
