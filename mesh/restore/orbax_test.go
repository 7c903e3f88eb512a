package restore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab"
)

func span(from, to serry.DeviceID) []serry.DeviceID {
	var ids []serry.DeviceID
	for id := from; id <= to; id++ {
		ids = append(ids, id)
	}
	return ids
}

func flat(shape ...int) Mesh {
	n, _ := size(shape)
	names := make([]string, len(shape))
	for i := range names {
		names[i] = fmt.Sprintf("axis%d", i)
	}
	return Mesh{Shape: shape, AxisNames: names, Devices: numbers(n)}
}

func TestRemapByTask(t *testing.T) {
	join := func(lists ...[]serry.DeviceID) []serry.DeviceID { return slices.Concat(lists...) }
	rows := Table{
		join(span(0, 3), span(8, 11)), join(span(4, 7), span(12, 15)),
		join(span(16, 19), span(24, 27)), join(span(20, 23), span(28, 31)),
	}
	cpu := Table{{0, 1}, {2048, 2049}, {4096, 4097}, {6144, 6145}}
	tests := []struct {
		name  string
		saved Metadata
		now   Table
		mesh  Mesh
		want  []serry.DeviceID
	}{
		{"EX-RMP-1", Metadata{rows, []serry.DeviceID{0, 1, 8, 9, 2, 3, 10, 11, 16, 17, 24, 25, 18, 19, 26, 27,
			4, 5, 12, 13, 6, 7, 14, 15, 20, 21, 28, 29, 22, 23, 30, 31}},
			Table{rows[0], rows[2], rows[1], rows[3]}, flat(16, 2),
			[]serry.DeviceID{0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15,
				16, 17, 24, 25, 18, 19, 26, 27, 20, 21, 28, 29, 22, 23, 30, 31}},
		{"EX-RMP-2", Metadata{Table{{2, 3}, {0, 1}, {4, 5}, {6, 7}}, numbers(8)},
			Table{{0, 1}, {2, 3}, {4, 5}, {6, 7}}, flat(4, 2), []serry.DeviceID{2, 3, 0, 1, 4, 5, 6, 7}},
		{"EX-RMP-3", Metadata{Table{{6, 7}, {2, 3}, {4, 5}, {0, 1}}, numbers(8)},
			Table{{0, 1}, {2, 3}, {4, 5}, {6, 7}}, flat(8), []serry.DeviceID{6, 7, 2, 3, 4, 5, 0, 1}},
		{"EX-RMP-4", Metadata{cpu, slices.Concat(cpu...)}, Table{cpu[1], cpu[0], cpu[2], cpu[3]}, flat(4, 2),
			[]serry.DeviceID{2048, 2049, 0, 1, 4096, 4097, 6144, 6145}},
		{"TC-RMP-02", Metadata{cpu, slices.Concat(cpu...)}, cpu, flat(2, 4), slices.Concat(cpu...)},
		// EX-RMP-5: the tables are equal although hosts were shuffled, and this
		// way of remapping cannot see it. TestPlanSeesShuffledRanks can.
		{"EX-RMP-5", Metadata{Table{{0, 1}, {2, 3}, {4, 5}, {6, 7}}, numbers(8)},
			Table{{0, 1}, {2, 3}, {4, 5}, {6, 7}}, flat(4, 2), numbers(8)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			lab.Clause(t, test.name, "TC-RMP-01", "C-RMP-7")
			got, err := RemapByTask(&test.saved, test.now, test.mesh)
			if err != nil || !slices.Equal(got.Devices, test.want) || !slices.Equal(got.Shape, test.mesh.Shape) {
				t.Errorf("RemapByTask() = %v, %v; want %v", got, err, test.want)
			}
		})
	}
}

func TestRemapKeepsAxisTypes(t *testing.T) {
	lab.Clause(t, "TC-RMP-20", "C-RMP-7")
	user := flat(2, 2)
	user.AxisTypes = []string{"Explicit", "Auto"}
	saved := &Metadata{Table{{0, 1}, {2, 3}}, numbers(4)}
	got, err := RemapByTask(saved, Table{{2, 3}, {0, 1}}, user)
	if err != nil || !slices.Equal(got.AxisTypes, user.AxisTypes) || !slices.Equal(got.AxisNames, user.AxisNames) {
		t.Errorf("RemapByTask() = %+v, %v; want the axes of the user's mesh", got, err)
	}
}

func TestRemapByID(t *testing.T) {
	lab.Clause(t, "C-RMP-8", "C-RMP-12")
	saved := &Metadata{Table{{0, 1}, {2, 3}}, []serry.DeviceID{3, 2, 1, 0}}
	got, err := RemapByID(saved, Table{{2, 3}, {0, 1}}, flat(2, 2))
	if err != nil || !slices.Equal(got.Devices, saved.Mesh) {
		t.Errorf("RemapByID() = %v, %v; want the saved mesh", got.Devices, err)
	}
	_, err = RemapByID(saved, Table{{0, 1}, {4, 5}}, flat(2, 2))
	if ue, ok := errors.AsType[*UnknownDeviceError](err); !ok || ue.Device != 3 || ue.Position != 0 {
		t.Errorf("RemapByID without device 3 = %v; want it named", err)
	}
	if _, err := RemapByID(saved, Table{{0, 1}, {2, 3}}, flat(5)); err == nil {
		t.Error("RemapByID into a mesh of another size = nil; want an error")
	}
}

func TestRemapRefuses(t *testing.T) {
	lab.Clause(t, "C-RMP-11", "C-RMP-12", "P-RMP-11")
	saved := &Metadata{Table{{0, 1}, {2, 3}}, numbers(4)}
	elastic := []struct {
		name  string
		saved *Metadata
		now   Table
		user  Mesh
		want  string
	}{
		{"fewer tasks", saved, Table{{0, 1}}, flat(2), "1 tasks, 2 when"},
		{"fewer devices", saved, Table{{0}, {2, 3}}, flat(3), "3 devices, 4 when"},
		{"devices moved between tasks", saved, Table{{0}, {1, 2, 3}}, flat(4), "1 devices of task 0, 2 when"},
		{"another mesh", saved, Table{{0, 1}, {2, 3}}, flat(2), "2 devices in the mesh, 4 when"},
	}
	for _, test := range elastic {
		_, err := RemapByTask(test.saved, test.now, test.user)
		if _, ok := errors.AsType[*ElasticError](err); !ok || !containsText(err, test.want) {
			t.Errorf("RemapByTask(%s) = %v; want %q", test.name, err, test.want)
		}
	}
	stray := &Metadata{Table{{0, 1}}, []serry.DeviceID{0, 9}}
	_, err := RemapByTask(stray, Table{{0, 1}}, flat(2))
	if ue, ok := errors.AsType[*UnknownDeviceError](err); !ok || ue.Device != 9 || ue.Position != 1 {
		t.Errorf("RemapByTask with a device of nobody = %v; want it named", err)
	}
}

func TestFilesInFolder(t *testing.T) {
	lab.Clause(t, "TC-RMP-03", "C-RMP-4")
	dir := t.TempDir()
	folder := filepath.Join("nested", "12", MetadataFolder)
	if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
		t.Fatal(err)
	}
	md := &Metadata{Table{{10, 11}}, []serry.DeviceID{10, 11}}
	for _, f := range md.Files() {
		if err := os.WriteFile(filepath.Join(dir, folder, f.Name), f.Text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	read := map[string][]byte{}
	entries, err := os.ReadDir(filepath.Join(dir, folder))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if read[e.Name()], err = os.ReadFile(filepath.Join(dir, folder, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ParseFolder(folder, read, false)
	if err != nil {
		t.Fatalf("ParseFolder() = %v", err)
	}
	if diff := cmp.Diff(md, got.Metadata); diff != "" || got.Manifest != nil {
		t.Errorf("ParseFolder() (-want +got)\n%s", diff)
	}
	files := md.Files()
	if string(files[0].Text) != "[[10, 11]]" || string(files[1].Text) != "[10, 11]" {
		t.Errorf("Files() = %s and %s; want the texts of Python", files[0].Text, files[1].Text)
	}
}

func folderOf(files map[string]string) map[string][]byte {
	folder := map[string][]byte{}
	for name, text := range files {
		folder[name] = []byte(text)
	}
	return folder
}

func TestParseFolderRefuses(t *testing.T) {
	lab.Clause(t, "TC-RMP-04", "C-RMP-6", "P-RMP-11")
	whole := map[string]string{TableFile: "[[0], [1]]", MeshFile: "[1, 0]", commitMarker: ""}
	if _, err := ParseFolder(MetadataFolder, nil, false); !errors.Is(err, ErrMissing) || !containsText(err, MetadataFolder) {
		t.Errorf("ParseFolder(no folder) = %v; want it known as missing", err)
	}
	if _, err := ParseFolder(MetadataFolder, folderOf(whole), true); err != nil {
		t.Errorf("ParseFolder(with marker) = %v; want no error", err)
	}
	unmarked := folderOf(whole)
	delete(unmarked, commitMarker)
	_, err := ParseFolder(MetadataFolder, unmarked, true)
	wantFault(t, "ParseFolder(marker removed)", err, "was not finalized")
	_, err = ParseFolder("12/process_metadata.orbax-checkpoint-tmp-3", folderOf(whole), false)
	wantFault(t, "ParseFolder(temporary name)", err, "was not finalized")

	tests := []struct{ file, text, want string }{
		{TableFile, `[[0, 1], [2`, "global_process_metadata.json: cut short: it ends after 11 bytes"},
		{TableFile, `[[0, 1], [2, 1]]`, "[1][1]: device 1 belongs to process 0 already"},
		{TableFile, `[[0, 1], null]`, "[1]: null where a list"},
		{TableFile, `null`, "null where a list of lists"},
		{TableFile, `[[0, null]]`, "[0][1]: not a device id"},
		{TableFile, `[[0, -1]]`, "[0][1]: not a device id"},
		{TableFile, `[[99999999999]]`, "[0][0]: not a device id"},
		{TableFile, `[[0.5]]`, "a number 0.5 where a"},
		{TableFile, `[["0"]]`, "a string where a"},
		{TableFile, `{"0": [1]}`, "a object where a"},
		{TableFile, `[[0]] [[1]]`, "more text after its end"},
		{TableFile, `[[0],]`, "not JSON at byte 6"},
		{MeshFile, ``, "mesh_metadata.json: cut short: it ends after 0 bytes"},
		{MeshFile, `[1, 2`, "mesh_metadata.json: cut short"},
		{MeshFile, `[1, 1e99]`, "mesh_metadata.json"},
		{MeshFile, `null`, "null where a list of device ids"},
	}
	for _, test := range tests {
		files := folderOf(whole)
		files[test.file] = []byte(test.text)
		_, err := ParseFolder(MetadataFolder, files, false)
		wantFault(t, "ParseFolder("+test.text+")", err, test.want)
		wantFault(t, "ParseFolder("+test.text+")", err, MetadataFolder+"/"+test.file)
	}
	missing := folderOf(map[string]string{TableFile: "[[0]]"})
	if _, err := ParseFolder(MetadataFolder, missing, false); !errors.Is(err, ErrMissing) || !containsText(err, MeshFile) {
		t.Errorf("ParseFolder without the mesh = %v; want the file named", err)
	}
}

func TestManifestWins(t *testing.T) {
	lab.Clause(t, "P-RMP-9", "P-RMP-1")
	m := &Manifest{Mesh: flat(2, 2), Tasks: hosts("a", "b")}
	text, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseFolder(MetadataFolder, folderOf(map[string]string{ManifestFile: string(text), TableFile: "[[7]]", MeshFile: "["}), false)
	if err != nil || got.Manifest == nil || fmt.Sprint(got.Table, got.Mesh) != "[[0 1] [2 3]] [0 1 2 3]" {
		t.Errorf("ParseFolder() = %+v, %v; want what the manifest says", got, err)
	}
	broken := folderOf(map[string]string{ManifestFile: string(text[:len(text)/2]), TableFile: "[[7]]", MeshFile: "[7]"})
	if _, err := ParseFolder(MetadataFolder, broken, false); !errors.Is(err, io.ErrUnexpectedEOF) || !containsText(err, ManifestFile) {
		t.Errorf("ParseFolder with half a manifest = %v; want that said, not the older files used", err)
	}
}

func TestDevicesText(t *testing.T) {
	lab.Clause(t, "TC-RMP-21", "C-RMP-1")
	for _, text := range []string{"[0, 1]", "[]", "[2048, 2049, 7]"} {
		ids, err := parseDevices("orbax/distributed_to_device_ids/0", []byte(text))
		if err != nil || formatDevices(ids) != text {
			t.Errorf("formatDevices(parseDevices(%s)) = %s, %v; want the same", text, formatDevices(ids), err)
		}
	}
	if table, err := parseTable("t", []byte("[[0], []]")); err != nil || len(table) != 2 || len(table[1]) != 0 {
		t.Errorf("a table with an empty row = %v, %v; want it read", table, err)
	}
	_, err := parseDevices("orbax/distributed_to_device_ids/0", []byte("(0, 1)"))
	wantFault(t, "parseDevices of a tuple", err, "orbax/distributed_to_device_ids/0: not JSON")
}

func FuzzParseTable(f *testing.F) {
	f.Add([]byte("[[0, 1], [2048]]"))
	f.Add([]byte("[[]]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		table, err := parseTable("f", text)
		if err != nil {
			return
		}
		first := (&Metadata{Table: table}).Files()[0].Text
		again, err := parseTable("f", first)
		if diff := cmp.Diff(table, again); err != nil || diff != "" {
			t.Errorf("not stable: %v\n%s", err, diff)
		}
	})
}

func FuzzParseDevices(f *testing.F) {
	f.Add([]byte("[0, 1]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		ids, err := parseDevices("f", text)
		if err != nil {
			return
		}
		if again, err := parseDevices("f", []byte(formatDevices(ids))); err != nil || !slices.Equal(ids, again) {
			t.Errorf("not stable: %v, then %v, %v", ids, again, err)
		}
	})
}
