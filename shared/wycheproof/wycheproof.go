// Package wycheproof reads the test vectors of Wycheproof, for tests.
//
// The vectors are 26 MB, and go.mod does not require their module, because every module
// that imports Payhook would need it. The go command downloads it when a test needs it for
// the first time, checks it against the checksum database, and keeps it in its cache.
package wycheproof

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const module = "github.com/c2sp/wycheproof@v0.0.0-20260902155932-3fa63dd0344a"

// Read returns a file of the folder testvectors_v1. The test fails if the vectors are not
// in the module cache and cannot be downloaded.
func Read(t testing.TB, name string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
	cmd.Dir = t.TempDir() // in a module, the command would add the vectors to its go.sum
	out, failed := cmd.Output()
	var downloaded struct{ Dir, Error string }
	if err := json.Unmarshal(out, &downloaded); failed != nil || err != nil {
		t.Fatalf("go mod download %s, which has the test vectors: %v %s", module, failed, downloaded.Error)
	}
	text, err := os.ReadFile(filepath.Join(downloaded.Dir, "testvectors_v1", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}
