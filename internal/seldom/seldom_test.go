package seldom_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/internal/seldom"
)

func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := seldom.Limit[int]{Period: time.Minute, Most: 2}
		for i, step := range []struct {
			key  int
			want bool
		}{{1, true}, {1, false}, {2, true}, {3, false}} {
			if got := l.Pick(step.key); got != step.want {
				t.Errorf("pick %d: Pick(%d) = %v; want %v", i, step.key, got, step.want)
			}
		}
		time.Sleep(time.Minute)
		if !l.Pick(3) || !l.Pick(1) {
			t.Error("a new period picks neither a new key nor an old one; want both")
		}
	})
}
