package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/mesh/form"
)

func newMesh() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mesh",
		Short: "See who holds which slice of an array, and what a change would move",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			return hinted{errors.New("mesh: what about it is not said"), "serry mesh show, or serry mesh plan"}
		},
	}
	cmd.AddCommand(newMeshShow(), newMeshPlan())
	return cmd
}

// shardingForms is the part of the help that both commands have.
const shardingForms = `A sharding is written as JAX prints it,
  "NamedSharding(mesh=Mesh('data': 4, 'model': 2, ...), spec=P('data', 'model'))"
or as a mesh with a spec after it, where axes alone stand for devices 0, 1, 2...
  "data=4,model=2 P('data', 'model')"
or as @file, a file with one of these or with the JSON form of package mesh.
A shape is 8x4, or bf16[8,4]; without a type it is f32.

Exit status: 0 done; 1 a file cannot be read; 2 what is written does not parse
or fit together.`

// meshPicture is what the commands about meshes have in common.
type meshPicture struct {
	shape  string
	tasks  int
	format format
}

const asSVG format = "svg"

func (p *meshPicture) define(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&p.shape, "shape", "", "`shape` of the array, with its element type or without: bf16[8,4], 8x4")
	f.IntVar(&p.tasks, "tasks", 0, "spread the devices evenly over this `number` of tasks, in mesh order")
	f.StringVarP((*string)(&p.format), "output", "o", "", "`format` of the answer: svg or json")
	_ = cmd.MarkFlagRequired("shape") // it is there
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(
		[]cobra.Completion{"json", "svg"}, cobra.ShellCompDirectiveNoFileComp))
}

// read reads what both commands are given.
func (p *meshPicture) read(texts []string) (extent, []*mesh.Sharding, error) {
	if !slices.Contains([]format{asTable, asJSON, asSVG}, p.format) {
		return extent{}, nil, fmt.Errorf("--output %q: want json or svg", p.format)
	}
	array, err := readExtent(p.shape)
	if err != nil {
		return extent{}, nil, fmt.Errorf("--shape %w", err)
	}
	shardings := make([]*mesh.Sharding, len(texts))
	for i, text := range texts {
		if shardings[i], err = readSharding(text, p.tasks); err != nil {
			return extent{}, nil, asFileError(err)
		}
	}
	return array, shardings, nil
}

// lookAt is how pictures are drawn on w.
func lookAt(w io.Writer) form.Look {
	on := paperOf(w)
	return form.Look{Width: on.width, Color: on.colour}
}

func newMeshShow() *cobra.Command {
	p := &meshPicture{}
	cmd := &cobra.Command{
		Use:   "show sharding --shape shape",
		Short: "Draw who holds which slice of an array",
		Long: `Draw who holds which slice of an array: a grid with the devices of each slice
where it fits, else a table. On a terminal every device has a colour.

` + shardingForms,
		Example: `  serry mesh show "data=4,model=2 P('data', 'model')" --shape 8x4
  serry mesh show "data=4,model=2 P('data')" --shape bf16[8,4] --tasks 4 -o svg > who.svg`,
		Args: func(_ *cobra.Command, args []string) error { return wantShardings(args, "one sharding", 1) },
		RunE: func(cmd *cobra.Command, args []string) error {
			array, shardings, err := p.read(args)
			if err == nil {
				err = p.show(cmd.OutOrStdout(), array, shardings[0])
			}
			return meshHint(cmd, err)
		},
	}
	p.define(cmd)
	return cmd
}

// meshHint says where the forms of arguments are explained, where that may help.
func meshHint(cmd *cobra.Command, err error) error {
	_, ran := errors.AsType[runError](err)
	if err == nil || ran {
		return err
	}
	return hinted{err, fmt.Sprintf("see %s --help", cmd.CommandPath())}
}

// wantShardings makes sure that the shell has not taken a text apart.
func wantShardings(args []string, what string, n int) error {
	if len(args) != n {
		return hinted{fmt.Errorf("%d arguments: want %s", len(args), what), "quote each: \"data=4 P('data')\""}
	}
	return nil
}

func (p *meshPicture) show(out io.Writer, array extent, s *mesh.Sharding) error {
	switch p.format {
	case asJSON:
		return showJSON(out, array, s)
	case asSVG:
		text, err := form.DrawSVG(s, array.shape)
		if err != nil {
			return err
		}
		_, err = io.WriteString(out, text)
		return err
	}
	text, err := form.Draw(s, array.shape, lookAt(out))
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, text)
	return err
}

// meshVersion is the version of the JSON answers of the commands about meshes.
const meshVersion = 1

type shownArray struct {
	Version  int          `json:"version"`
	Shape    []int        `json:"shape"`
	Element  string       `json:"dtype"`
	Sharding string       `json:"sharding"`
	Shard    []int        `json:"shard_shape"`
	Bytes    int          `json:"shard_bytes"`
	Shards   []shownShard `json:"shards"`
}

type shownShard struct {
	Device  serry.DeviceID  `json:"device"`
	Task    serry.TaskIndex `json:"task"`
	Index   mesh.Index      `json:"index"`
	Replica int             `json:"replica"`
}

func showJSON(out io.Writer, array extent, s *mesh.Sharding) error {
	size, err := s.ShardShape(array.shape)
	if err != nil {
		return err
	}
	shards, err := s.Shards(array.shape)
	if err != nil {
		return err
	}
	answer := shownArray{
		Version: meshVersion, Shape: listed(array.shape), Element: array.element.Name, Sharding: s.String(),
		Shard: listed(size), Bytes: array.element.Bytes, Shards: []shownShard{},
	}
	for _, n := range size {
		answer.Bytes *= n
	}
	for _, sh := range shards {
		answer.Shards = append(answer.Shards, shownShard(sh))
	}
	return writeJSON(out, answer)
}

// listed is a list that JSON writes as one even if it is empty.
func listed(sizes []int) []int { return append([]int{}, sizes...) }

func writeJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func newMeshPlan() *cobra.Command {
	p := &meshPlan{}
	cmd := &cobra.Command{
		Use:   "plan from to --shape shape",
		Short: "Say what moves over which link when a sharding changes",
		Long: `Plan the way of an array from one sharding to another, over the same devices or
others, and say how many bytes move over each link: between tasks, or with
--by device between devices. What several devices hold comes from within the
task if it can, else from whoever has sent least.

` + shardingForms,
		Example: `  serry mesh plan "data=8 P('data')" "data=8 P(None, 'data')" --shape f32[4096,4096] --tasks 4
  serry mesh plan @before.json @after.json --shape bf16[4096,4096] --lost 3,7 -o json`,
		Args: func(_ *cobra.Command, args []string) error { return wantShardings(args, "two shardings", 2) },
		RunE: func(cmd *cobra.Command, args []string) error {
			return meshHint(cmd, p.run(cmd.OutOrStdout(), args))
		},
	}
	p.define(cmd)
	cmd.Flags().StringVar(&p.by, "by", "task", "what the links join: `task` or device")
	cmd.Flags().IntSliceVar(&p.lost, "lost", nil, "`devices` whose data is gone, such as 3,7")
	return cmd
}

type meshPlan struct {
	meshPicture
	by   string
	lost []int
}

func (p *meshPlan) run(out io.Writer, args []string) error {
	if p.by != "task" && p.by != "device" {
		return fmt.Errorf("--by %q: want task or device", p.by)
	}
	array, shardings, err := p.read(args)
	if err != nil {
		return err
	}
	way := mesh.Reshard{
		Shape: array.shape, ElementBytes: array.element.Bytes, From: shardings[0], To: shardings[1], Partial: true,
	}
	for _, id := range p.lost {
		way.Lost = append(way.Lost, serry.DeviceID(id))
	}
	plan, err := way.Plan()
	if err != nil {
		return err
	}
	links := plan.TaskLinks()
	if p.by == "device" {
		links = plan.DeviceLinks()
	}
	switch p.format {
	case asJSON:
		return p.planJSON(out, array, shardings, plan, links)
	case asSVG:
		text, err := form.DrawLinksSVG(p.by, links)
		if err != nil {
			return err
		}
		_, err = io.WriteString(out, text)
		return err
	}
	text := form.DrawLinks(p.by, links, lookAt(out)) + gapsText(plan.Missing)
	_, err = io.WriteString(out, text)
	return err
}

// maxGaps is how many slices without a holder are listed.
const maxGaps = 16

// gapsText lists the slices that no device can give.
func gapsText(gaps []mesh.Gap) string {
	var b strings.Builder
	for i, g := range gaps {
		if i == maxGaps {
			fmt.Fprintf(&b, "… and %d more slices\n", len(gaps)-i)
			break
		}
		fmt.Fprintf(&b, "nobody holds %v, for device %d\n", g.Index, g.To)
	}
	return b.String()
}

type shownPlan struct {
	Version int         `json:"version"`
	Shape   []int       `json:"shape"`
	Element string      `json:"dtype"`
	From    string      `json:"from"`
	To      string      `json:"to"`
	By      string      `json:"by"`
	Moved   int         `json:"moved_bytes"`
	Stays   int         `json:"stays_bytes"`
	Links   []shownLink `json:"links"`
	Missing []shownGap  `json:"missing"`
}

type shownLink struct {
	From   int `json:"from"`
	To     int `json:"to"`
	Bytes  int `json:"bytes"`
	Ranges int `json:"ranges"`
}

type shownGap struct {
	Device serry.DeviceID `json:"device"`
	Index  [][2]int       `json:"index"`
}

func (p *meshPlan) planJSON(out io.Writer, array extent, ends []*mesh.Sharding, plan *mesh.Plan, links []mesh.Link) error {
	answer := shownPlan{
		Version: meshVersion, Shape: listed(array.shape), Element: array.element.Name,
		From: ends[0].String(), To: ends[1].String(), By: p.by, Links: []shownLink{}, Missing: []shownGap{},
	}
	for _, l := range links {
		answer.Links = append(answer.Links, shownLink(l))
		if l.From == l.To {
			answer.Stays += l.Bytes
		} else {
			answer.Moved += l.Bytes
		}
	}
	for _, g := range plan.Missing {
		gap := shownGap{Device: g.To, Index: [][2]int{}}
		for _, r := range g.Index {
			gap.Index = append(gap.Index, [2]int{r.Start, r.Stop})
		}
		answer.Missing = append(answer.Missing, gap)
	}
	return writeJSON(out, answer)
}
