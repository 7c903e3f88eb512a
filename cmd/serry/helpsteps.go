package main

import "github.com/spf13/cobra"

// helpOnSteps is what serry help steps prints: a page of help, not a command.
func helpOnSteps() *cobra.Command {
	return &cobra.Command{
		Use:   "steps",
		Short: "How a program tells serry how far it has come",
		Long: `A program that tells serry its steps gets to know how much of its time was of
use, what the rest was lost to, and which ranks hold the others up: serry status,
serry top, the last line of serry run, and the metrics of serry serve. Nothing
else of serry needs it: ranks that are slow are found at barriers, too.

Each rank, or rank 0 alone, writes the number of the step that it has finished:

  to the file that SERRY_STEP_FILE names, which serry run reads once a second:
      with open(os.environ["SERRY_STEP_FILE"], "w") as f: f.write(str(step))

  or to a key of the service, with any client:
      serry kv put serry/step/0 812

  or, in Go, by the member of package client:
      member.Step(ctx, 812)

While it does something else than training it adds a word, and writes the number
alone when that is over. The time is then shown under that word:
      812 checkpoint

A third word, in the file, is how many seconds that may take: until then the rank is
not called stuck, however long the others wait for it:
      812 checkpoint 300

A step that takes more than twice as long as the others is a stall; a step that had
been done before a restart is redone. In the file, 8 bytes with the number, the
lowest first, do as well as digits.`,
	}
}
