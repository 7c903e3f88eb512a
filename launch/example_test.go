package launch_test

import (
	"fmt"

	"github.com/serry-dev/serry/launch"
)

// A job of one task that fails once, and is started again.
func ExampleStart() {
	job, err := launch.Start(launch.Config{
		Command: []string{"sh", "-c", `echo "life $SERRY_LIFE of task $SERRY_TASK"; test $SERRY_LIFE = 2`},
		Tasks:   1, Restart: launch.RestartFailed, MaxRestarts: 1,
		Display: screen{},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	report := job.Wait()
	fmt.Println("well:", report.Well(), "restarts:", report.Restarts)
	// Output:
	// [0] life 1 of task 0
	// [0] life 2 of task 0
	// well: true restarts: 1
}

// A screen shows what tasks write.
type screen struct{}

func (screen) Line(task int, _ launch.Stream, text []byte) { fmt.Printf("[%d] %s\n", task, text) }
func (screen) Note(launch.Note)                            {}
