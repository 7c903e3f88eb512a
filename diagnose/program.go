package diagnose

import (
	"fmt"
	"slices"
	"strings"
)

// A Program is what the Python of a rank runs, and how many ranks it was told that there are.
type Program struct {
	Name  string `json:"name,omitempty"`  // of the file, or -m and the module; empty: not known
	Sum   string `json:"sum,omitempty"`   // of the content of the file, or empty
	Ranks string `json:"ranks,omitempty"` // the value of the variable that says how many ranks there are, or empty
	By    string `json:"by,omitempty"`    // the name of that variable
}

// JudgePrograms says which ranks run something else than most of them, and which were told another number of ranks than the
// job has (D-SC-19, D-SC-20). It says nothing before the programs of all ranks are known, and nothing where no program is that of
// more than half of them: such a job has parts by intention.
func JudgePrograms(all map[int]Program, size int) (lines []string) {
	if len(all) < size {
		return nil
	}
	groups := make(map[Program][]int)
	for rank := range size {
		p, ok := all[rank]
		if !ok {
			return nil
		}
		if p.Ranks != "" && p.Ranks != fmt.Sprint(size) {
			lines = append(lines, fmt.Sprintf("rank %d expects %s ranks (%s), the job has %d", rank, p.Ranks, p.By, size))
		}
		what := Program{Name: p.Name, Sum: p.Sum}
		groups[what] = append(groups[what], rank)
	}
	for usual, most := range groups {
		if 2*len(most) > size {
			lines = append(lines, otherPrograms(groups, usual)...)
		}
	}
	return lines
}

// programsNamed is how many lines there are about programs.
const programsNamed = 4

// otherPrograms names the ranks that do not run what most of them run.
func otherPrograms(groups map[Program][]int, usual Program) (lines []string) {
	for p, ranks := range groups {
		who, most := rankRanges(ranks), rankRanges(groups[usual])
		runs := verb(len(ranks), "runs", "run")
		switch {
		case p == usual || p.Name == "" || usual.Name == "":
		case p.Name == usual.Name:
			lines = append(lines, fmt.Sprintf("%s %s another version of %s than %s", who, runs, p.Name, most))
		default:
			lines = append(lines, fmt.Sprintf("%s %s a different program: %s, %s run %s", who, runs, p.Name, most, usual.Name))
		}
	}
	slices.Sort(lines)
	return lines[:min(len(lines), programsNamed)]
}

// ProgramOf finds the program in the command line of a Python.
func ProgramOf(args []string) string {
	for i := 1; i < len(args); i++ {
		switch a := args[i]; {
		case a == "-m" && i+1 < len(args):
			return "-m " + args[i+1]
		case a == "-W" || a == "-X":
			i++
		case a == "-c" || a == "-":
			return ""
		case !strings.HasPrefix(a, "-"):
			return a
		}
	}
	return ""
}
