package schedule

import (
	"fmt"
	"strings"
)

// String is the round in words: what is sent to which rank, what is received, and what is done with it.
func (r Round) String() string {
	var list []string
	for _, m := range r.Sends {
		list = append(list, fmt.Sprintf("send %sto rank %d", listed(m.Parts), m.Peer))
	}
	for _, m := range r.Recvs {
		list = append(list, fmt.Sprintf("receive %sfrom rank %d", listed(m.Parts), m.Peer))
	}
	for _, w := range r.Work {
		list = append(list, w.String())
	}
	return strings.Join(list, "; ")
}

func (w Work) String() string {
	if len(w.From) == 0 {
		return "zero " + w.Into.String()
	}
	var from []string
	for _, p := range w.From {
		from = append(from, p.String())
	}
	return w.Into.String() + " = " + strings.Join(from, " + ")
}

// listed is the parts of a message, with a space behind them, or nothing where there are none.
func listed(parts []Part) string {
	var b strings.Builder
	for i, p := range parts {
		b.WriteString(p.String())
		if i < len(parts)-1 {
			b.WriteByte(',')
		}
		b.WriteByte(' ')
	}
	return b.String()
}

// String is the buffer and the blocks: in[3], out[0:4], tmp2[5].
func (p Part) String() string {
	name := [...]string{In: "in", Out: "out"}
	buffer := fmt.Sprintf("tmp%d", p.Slot)
	if p.Buf != Tmp {
		buffer = name[p.Buf]
	}
	if p.Hi == p.Lo+1 {
		return fmt.Sprintf("%s[%d]", buffer, p.Lo)
	}
	return fmt.Sprintf("%s[%d:%d]", buffer, p.Lo, p.Hi)
}
