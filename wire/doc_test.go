package wire

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the table of answers in docs/WIRE.md")

// TestDocumented holds the table in docs/WIRE.md to the one in the code.
func TestDocumented(t *testing.T) {
	const (
		name  = "../docs/WIRE.md"
		begin = "<!-- answers: written by go test ./wire -run TestDocumented -rewrite -->\n"
		end   = "<!-- end of answers -->\n"
	)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	got, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table of answers", name)
	}
	want := answerTable()
	if got == want {
		return
	}
	if !*rewrite {
		t.Fatalf("%s does not show the present answers; run go test ./wire -run TestDocumented -rewrite", name)
	}
	if err := os.WriteFile(name, []byte(before+begin+want+end+after), 0o666); err != nil {
		t.Fatal(err)
	}
}

// answerTable is the table of answers for people to read.
func answerTable() string {
	var b strings.Builder
	b.WriteString("\n| call | what happened | code | payload | text |\n|---|---|---|---|---|\n")
	keys := slices.SortedFunc(maps.Keys(answers), func(a, b answerKey) int {
		return cmp.Or(cmp.Compare(a.op, b.op), strings.Compare(causeWords(a), causeWords(b)))
	})
	for _, key := range keys {
		a := answers[key]
		payload := [...]string{noPayload: "none", emptyPayload: "P0", taskPayload: "Pt", reportPayload: "Pt, reported", barrierPayload: "PB", servicePayload: "PM"}[a.payload]
		code := codeName(a.code)
		if a.payload == reportPayload {
			code = "as reported"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | `%s` |\n", callName(key.op), causeWords(key), code, payload, a.text)
	}
	return b.String() + "\n"
}

func causeWords(key answerKey) string {
	if v, ok := key.cause.(*variant); ok {
		return v.base.Error() + ": " + v.name
	}
	return key.cause.Error()
}

func callName(op Op) string {
	switch op {
	case opTask:
		return "*a task failed*"
	case opAny:
		return "*any call*"
	}
	return op.String()
}

// codeName writes a code as gRPC does, INVALID_ARGUMENT for InvalidArgument.
func codeName(c codes.Code) string {
	if c == codes.Canceled {
		return "CANCELLED"
	}
	var b strings.Builder
	for i, r := range c.String() {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteString(strings.ToUpper(string(r)))
	}
	return b.String()
}
