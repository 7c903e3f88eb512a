package diagnose

import (
	"slices"
	"strings"
	"testing"

	"github.com/serry-dev/serry/internal/lab/clause"
)

func TestJudgePrograms(t *testing.T) {
	clause.Cite(t, "D-SC-19", "D-SC-20")
	train, eval := Program{Name: "train.py", Sum: "a"}, Program{Name: "eval.py", Sum: "b"}
	older := Program{Name: "train.py", Sum: "c"}
	five := Program{Name: "train.py", Sum: "a", Ranks: "5", By: "OMPI_COMM_WORLD_SIZE"}
	four := Program{Name: "train.py", Sum: "a", Ranks: "4", By: "OMPI_COMM_WORLD_SIZE"}
	for name, c := range map[string]struct {
		programs []Program
		want     []string
	}{
		"one program":             {[]Program{train, train, train, train}, nil},
		"another program":         {[]Program{train, train, train, eval}, []string{"rank 3 runs a different program: eval.py, ranks 0-2 run train.py"}},
		"another version":         {[]Program{older, train, train, older, train}, []string{"ranks 0,3 run another version of train.py than ranks 1-2,4"}},
		"one is not known":        {[]Program{train, train, train}, nil},
		"no Python":               {[]Program{train, train, train, {}}, nil},
		"parts by intention":      {[]Program{train, train, eval, eval}, nil},
		"another number of ranks": {[]Program{four, four, four, five}, []string{"rank 3 expects 5 ranks (OMPI_COMM_WORLD_SIZE), the job has 4"}},
		"the right number":        {[]Program{four, four, four, four}, nil},
	} {
		all := make(map[int]Program)
		for rank, p := range c.programs {
			all[rank] = p
		}
		size := max(4, len(c.programs))
		if got := JudgePrograms(all, size); !slices.Equal(got, c.want) {
			t.Errorf("%s: JudgePrograms() = %q; want %q", name, got, c.want)
		}
	}
}

func TestProgramOf(t *testing.T) {
	clause.Cite(t, "D-SC-19")
	for line, want := range map[string]string{
		"python train.py --lr 1":                "train.py",
		"python -u -X faulthandler /a/train.py": "/a/train.py",
		"python -W ignore -m trainer.main x":    "-m trainer.main",
		"python -c print(1)":                    "",
		"python":                                "",
		"":                                      "",
	} {
		if got := ProgramOf(strings.Split(line, " ")); got != want {
			t.Errorf("ProgramOf(%q) = %q; want %q", line, got, want)
		}
	}
}
