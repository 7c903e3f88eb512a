package etcd

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/serry-dev/serry/internal/lab/clause"
)

func TestJudge(t *testing.T) {
	clause.Cite(t, "C-LIM-1")
	for _, row := range []struct {
		name    string
		guessed bool
		status  *clientv3.StatusResponse
		full    bool
	}{
		{name: "empty", status: &clientv3.StatusResponse{}},
		{name: "most of the quota", status: &clientv3.StatusResponse{DbSize: 87}},
		{name: "the reserve", status: &clientv3.StatusResponse{DbSize: 90}, full: true},
		{name: "more than a quota that was guessed", guessed: true, status: &clientv3.StatusResponse{DbSize: 900}},
		{name: "alarm", guessed: true, status: &clientv3.StatusResponse{Errors: []string{"memberID:17 alarm:NOSPACE "}}, full: true},
		{name: "another alarm", status: &clientv3.StatusResponse{Errors: []string{"memberID:17 alarm:CORRUPT "}}},
	} {
		r := &reign{reader: reader{service: &service{}}, quota: 100, guessed: row.guessed}
		for range 2 { // what it was before does not matter
			r.judge(row.status)
			if full := r.Full() != nil; full != row.full {
				t.Errorf("%s: Full() = %v; want full %v", row.name, r.Full(), row.full)
			}
		}
		if r.judge(&clientv3.StatusResponse{}); r.Full() != nil {
			t.Errorf("%s: Full() = %v, although there is room again", row.name, r.Full())
		}
	}
}
