package settings_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"

	"payhook.example/shared/settings"
)

var update = flag.Bool("update", false, "write the table of settings into infra/README.md")

// The table in infra/README.md has the comments and tags of the fields. go test ./shared/settings -run Document
// -update writes it.
func TestDocumentHasTheFieldOfEachSetting(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "settings.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	meanings := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if field, ok := n.(*ast.Field); ok && len(field.Names) > 0 {
			text := strings.TrimSuffix(strings.Join(strings.Fields(field.Doc.Text()), " "), ".")
			meanings[field.Names[0].Name] = regexp.MustCompile(`^\w+ (is|are) `).ReplaceAllString(text, "")
		}
		return true
	})
	var table, group string
	for _, s := range settings.All() {
		if s.Group != group {
			group = s.Group
			table += "| **" + group + "** | | |\n"
		}
		byDefault := ""
		if s.Default != "" {
			byDefault = " `" + s.Default + "`"
		}
		if _, limits, limited := strings.Cut(s.Limits(), "from "); limited {
			byDefault += "; " + limits
		}
		meaning := meanings[s.Name]
		for _, other := range settings.All() {
			meaning = regexp.MustCompile(`\b`+other.Name+`\b`).ReplaceAllString(meaning, "`"+other.Key+"`")
		}
		if meaning == "" || s.Group == "" {
			t.Errorf("%s has no meaning or no group", s.Key)
		}
		table += fmt.Sprintf("| `%s` |%s | %s |\n", s.Key, byDefault, meaning)
	}
	const path = "../../infra/README.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const head, next = "| key | default; limits | meaning |\n|---|---|---|\n", "\n## Deploy\n"
	before, rest, ok := strings.Cut(string(text), head)
	_, after, found := strings.Cut(rest, next)
	if !ok || !found {
		t.Fatal("infra/README.md has no table")
	}
	want := before + head + table + next + after
	if *update {
		err = os.WriteFile(path, []byte(want), 0o644)
	} else if string(text) != want {
		t.Error("infra/README.md is not up to date: go test ./shared/settings -run Document -update")
	}
	if err != nil {
		t.Fatal(err)
	}
}
