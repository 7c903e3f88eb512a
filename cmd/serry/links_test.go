package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
)

// A report that cannot be read is an error of its task, and keeps no other from being read.
func TestUnreadableReport(t *testing.T) {
	clause.Cite(t, "CL-TRN-33")
	bad, good := serry.Life{Task: serry.TaskID{Job: "worker", Index: 0}, Incarnation: 1}, serry.Life{Task: serry.TaskID{Job: "worker", Index: 1}, Incarnation: 2}
	s := &linkSurvey{pending: map[serry.Life]bool{bad: true, good: true}, reports: make(map[serry.Life]link.Report)}
	for life, text := range map[serry.Life]string{bad: "\xff", good: `{"links":3}`} {
		if err := s.take(t.Context(), coord.Change{Entry: serry.Entry{Key: link.ReportKey(life), Value: []byte(text)}}); err != nil {
			t.Fatalf("take(%q) = %v", text, err)
		}
	}
	if len(s.pending) > 0 || s.reports[good].Links != 3 || len(s.bad) != 1 || !strings.HasPrefix(s.bad[0].Error(), "worker/0: ") {
		t.Errorf("pending %v, reports %v, errors %v; want a report of worker/1 and an error of worker/0", s.pending, s.reports, s.bad)
	}
}

// The table has a row for each end of a link, ordered by task and peer. What is missing is said behind it.
func TestLinksTable(t *testing.T) {
	clause.Cite(t, "CL-TRN-33")
	figures := func(peer string, silent float64, resent uint64) link.Figures {
		return link.Figures{
			Peer: peer, Incarnation: 0xabc, Address: "10.0.0.7:4001", Lanes: 4, Suspected: silent > 1, UpSeconds: 7384, SilentSeconds: silent,
			TripMicros: 87.6, FramesSent: 12, FramesReceived: 13, BytesSent: 5 << 30, BytesReceived: 999, Retransmits: resent, Waiting: 2,
		}
	}
	list := linkList{
		Tasks: []linkedTask{
			{"worker/0", 1, link.Report{Links: 1002, Worst: []link.Figures{figures("worker/10", 2.25, 31), figures("worker/9", 0, 0)}}},
			{"worker/9", 2, link.Report{Links: 1, Worst: []link.Figures{figures("worker/0", 0.125, 0)}}},
		},
		Silent: []string{"worker/3", "worker/4", "worker/7"},
	}
	for _, c := range []struct {
		name   string
		format format
		want   string
	}{
		{"narrow", asTable, `RANK  PEER  STATE      LANES     SENT  RECEIVED  RESENT  SILENT     UP
   0     9  up             4  5.0 GiB     999 B       0    0.0s  2h03m
   0    10  suspected      4  5.0 GiB     999 B      31    2.2s  2h03m
   9     0  up             4  5.0 GiB     999 B       0    0.1s  2h03m
`},
		{"wide", asWide, `RANK  PEER  STATE      LANES     SENT  RECEIVED  RESENT  SILENT     UP   TRIP  WAITING  FRAMES SENT  FRAMES RECEIVED  INCARNATION       ADDRESS
   0     9  up             4  5.0 GiB     999 B       0    0.0s  2h03m  88 us        2           12               13  0000000000000abc  10.0.0.7:4001
   0    10  suspected      4  5.0 GiB     999 B      31    2.2s  2h03m  88 us        2           12               13  0000000000000abc  10.0.0.7:4001
   9     0  up             4  5.0 GiB     999 B       0    0.1s  2h03m  88 us        2           12               13  0000000000000abc  10.0.0.7:4001
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, notes bytes.Buffer
			q := &query{printer: printer{format: c.format, out: &out, errors: &notes, paper: paper{width: plainWidth}}}
			err := q.showLinks(list, true, "5s")
			if diff := cmp.Diff(c.want, out.String()); diff != "" {
				t.Errorf("table (-want +got):\n%s", diff)
			}
			if want := "serry: rank 0 has 1000 more links\n"; notes.String() != want {
				t.Errorf("notes are %q; want %q", notes.String(), want)
			}
			if want := "no answer within 5s from ranks 3-4 7"; err == nil || err.Error() != want {
				t.Errorf("showLinks() = %v; want %v", err, want)
			}
		})
	}
}
