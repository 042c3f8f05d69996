package shared_test

import (
	"crypto/elliptic"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/keys"
	"payhook.example/shared/payment"
	"payhook.example/shared/signature"
)

// documents returns the Markdown files of the repository by their paths in it.
func documents(t *testing.T) map[string]string {
	t.Helper()
	return files(t, ".md")
}

// files returns the files with these extensions.
func files(t *testing.T, extensions ...string) map[string]string {
	t.Helper()
	root := checkout(t)
	files := map[string]string{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", ".local", ".build", "cdk.out", "node_modules"},
			entry.Name()):
			return filepath.SkipDir
		case entry.IsDir() || !slices.Contains(extensions, filepath.Ext(name)):
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		files[filepath.ToSlash(relative)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// prose returns a document without its blocks of code.
func prose(document string) string {
	var lines []string
	code := false
	for line := range strings.Lines(document) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		} else if !code {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

var heading = regexp.MustCompile(`(?m)^#+ (.+)$`)

// anchors returns the names under which GitHub links to a document's headings:
// lower case, hyphens for spaces, and no other punctuation. A heading that
// occurs again gets a number.
func anchors(document string) map[string]bool {
	names := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(prose(document), -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(match[1]))
		unique := name
		for i := 1; names[unique]; i++ {
			unique = fmt.Sprintf("%s-%d", name, i)
		}
		names[unique] = true
	}
	return names
}

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
	ourPath  = regexp.MustCompile(`^(events|functions|infra|shared)/[\w./-]+$`)
)

// brokenLinks returns the links and paths of a document that lead nowhere.
func brokenLinks(root, name string, all map[string]string) []string {
	var broken []string
	text := prose(all[name])
	for _, match := range link.FindAllStringSubmatch(text, -1) {
		target, err := url.Parse(match[1])
		if err != nil {
			broken = append(broken, fmt.Sprintf("%s: %v", match[1], err))
			continue
		}
		if target.Scheme != "" {
			continue
		}
		file := name
		if target.Path != "" {
			file = path.Join(path.Dir(name), target.Path)
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(file))); err != nil {
				broken = append(broken, match[1]+": there is no such file")
				continue
			}
		}
		if target.Fragment != "" && !anchors(all[file])[target.Fragment] {
			broken = append(broken, match[1]+": there is no such heading")
		}
	}
	for _, match := range codeSpan.FindAllStringSubmatch(text, -1) {
		if !ourPath.MatchString(match[1]) {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(match[1]))); err != nil {
			broken = append(broken, match[1]+": there is no such path")
		}
	}
	return broken
}

func TestTheDocumentsLinkToWhatExists(t *testing.T) {
	all := documents(t)
	if len(all) < 2 {
		t.Fatalf("found %d documents", len(all))
	}
	for name := range all {
		for _, problem := range brokenLinks(checkout(t), name, all) {
			t.Errorf("%s: %s", name, problem)
		}
	}
}

var (
	inFile   = regexp.MustCompile("`((?:events|functions|infra|shared)/[^` ]+\\.go)`: ((?:`\\w+`(?:, )?)+)")
	declared = `(?m)^(func (\([^)]*\) )?|type |var |\t)%s\b`
)

// A path of a Go file that is followed by a colon and names is that of a file which declares them.
func TestTheMapNamesFunctionsThatExist(t *testing.T) {
	n, code := 0, files(t, ".go")
	for name, text := range documents(t) {
		for _, match := range inFile.FindAllStringSubmatch(prose(text), -1) {
			for _, function := range codeSpan.FindAllStringSubmatch(match[2], -1) {
				n++
				if !regexp.MustCompile(fmt.Sprintf(declared, function[1])).MatchString(code[match[1]]) {
					t.Errorf("%s: %s does not declare %s", name, match[1], function[1])
				}
			}
		}
	}
	if n < 15 {
		t.Errorf("found %d names", n)
	}
}

var snippet = regexp.MustCompile("(?s)<!-- from ([^ ]+) -->\n\n```go\n(.*?)```")

// A block of Go after a comment "from FILE" must be in that file, line by line.
func TestTheDocumentsShowCodeThatIsTested(t *testing.T) {
	n := 0
	for name, text := range documents(t) {
		for _, match := range snippet.FindAllStringSubmatch(text, -1) {
			n++
			source, err := os.ReadFile(filepath.Join(checkout(t), filepath.FromSlash(match[1])))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(unindented(string(source)), unindented(match[2])) {
				t.Errorf("%s: %s does not contain\n%s", name, match[1], match[2])
			}
		}
	}
	if n < 2 {
		t.Errorf("found %d blocks of code", n)
	}
}

// unindented returns a text without the white space and the comment marks before
// its lines.
func unindented(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimLeft(line, "/ \t"))
	}
	return strings.Join(lines, "")
}

func TestTheDocumentListsEveryPackage(t *testing.T) {
	text := documents(t)["shared/README.md"]
	listed := regexp.MustCompile("(?m)^\\| \\[?`(\\w+)`")
	var got []string
	for _, match := range listed.FindAllStringSubmatch(text, -1) {
		got = append(got, match[1])
	}
	var want []string
	entries, err := os.ReadDir(filepath.Join(checkout(t), "shared"))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.IsDir() {
			want = append(want, entry.Name())
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("shared/README.md lists %q, want %q", got, want)
	}
}

func TestDocumentsAreAtMost120ColumnsWide(t *testing.T) {
	for name, text := range documents(t) {
		number := 0
		for line := range strings.Lines(text) {
			number++
			line = strings.TrimRight(line, "\n")
			// Tables, links, and a value such as a signature cannot be wrapped.
			if strings.HasPrefix(line, "|") || strings.Contains(line, "](http") ||
				slices.ContainsFunc(strings.Fields(line), func(word string) bool { return len(word) > 100 }) {
				continue
			}
			if n := utf8.RuneCountInString(line); n > 120 {
				t.Errorf("%s:%d has %d columns, want at most 120", name, number, n)
			}
		}
	}
}

// One thing has one name: these words were replaced, in code, settings, messages and documents.
func TestReplacedWordsDoNotComeBack(t *testing.T) {
	replaced := regexp.MustCompile(`(?i)captureRejected|capturer\b|claim ?bucket|claimRetention|claimEnds|` +
		`keysAuth|allowedSources|key ?service|sandbox|awsenv|first-?kept|version-?unfit|version-missing|` +
		`infra/deployment|aws/stack\b|functions/[a-z]+/handler\b|DeploymentOutput|` +
		`source address is|another process asks|(first|parked) version|(stores?|name) of (a|the) deployment`)
	for name, text := range files(t, ".go", ".md", ".txt", ".json", ".js", ".html", ".yml") {
		if found := replaced.FindString(text); found != "" && name != "shared/documents_test.go" {
			t.Errorf("%s says %q", name, found)
		}
	}
}

func TestTheDocumentsAreShort(t *testing.T) {
	all, total := documents(t), 0
	for _, text := range all {
		total += len(text)
	}
	if size := len(all["README.md"]); size > 10<<10 || total > 88<<10 || len(all) > 13 {
		t.Errorf("README.md has %d bytes, want at most 10 KB; the %d documents %d, want 13 and 88 KB", size, len(all),
			total)
	}
}

func TestTheSignedExampleVerifies(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(checkout(t), "functions", "signed-example.json"))
	if err != nil {
		t.Fatal(err)
	}
	var example struct {
		Payload, Timestamp, Signature string
		JWK                           jsontext.Value
	}
	if err := json.Unmarshal(text, &example, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	var id struct {
		Kid string `json:"kid"`
	}
	if err := json.Unmarshal(example.JWK, &id); err != nil {
		t.Fatal(err)
	}
	key, err := keys.ParseJWK(example.JWK, id.Kid)
	if err != nil {
		t.Fatal(err)
	}
	proof := signature.Parts{Timestamp: example.Timestamp, KeyID: id.Kid, Signature: example.Signature}
	if err := signature.Verify(key, []byte(example.Payload), proof); err != nil {
		t.Error(err)
	}
	if err := signature.Verify(key, []byte(example.Payload+" "), proof); !errors.Is(err, signature.ErrMismatch) {
		t.Errorf("with another payload: %v", err)
	}
}

// What the table of cryptography says of lengths and algorithms is what the code accepts.
func TestTheTableOfCryptographyIsThatOfTheCode(t *testing.T) {
	_, table, _ := strings.Cut(documents(t)["infra/CONTROLS.md"], "\n## Cryptography\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for row, want := range map[string]string{
		"signature of a webhook": fmt.Sprintf("RSASSA-PKCS1-v1_5 with SHA-256 (RS256; RFC 8017, section 8.2), RSA of "+
			"%d to %d bits", 8*keys.MinModulusBytes, 8*keys.MaxModulusBytes),
		"client certificates": fmt.Sprintf("RSA of %d to %d bits, or ECDSA on %s, %s or %s; signed with SHA-256 or "+
			"stronger", clientcert.MinRSABits, clientcert.MaxRSABits, elliptic.P256().Params().Name,
			elliptic.P384().Params().Name, elliptic.P521().Params().Name),
	} {
		if !strings.Contains(table, "| "+row+" | "+want) {
			t.Errorf("the row %q does not say %q", row, want)
		}
	}
}

// The page of the interface names each setting that depends on the service, and its examples are valid.
func TestTheInterfaceIsThatOfTheCode(t *testing.T) {
	page := documents(t)["functions/INTERFACE.md"]
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)` .*§([0-9.]*[0-9])").
		FindAllStringSubmatch(documents(t)["infra/README.md"], -1)
	if len(rows) < 15 {
		t.Errorf("%d settings name a section", len(rows))
	}
	for _, row := range rows {
		section := regexp.MustCompile(`(?m)^#+ (.* )?` + row[2] + `\.? |\(` + row[2] + `\):`)
		if !strings.Contains(page, "`"+row[1]+"`") || !section.MatchString(page) {
			t.Errorf("%s or its section %s is missing", row[1], row[2])
		}
	}
	_, after, _ := strings.Cut(page, "### 2.3 ")
	_, after, _ = strings.Cut(after, "```json\n")
	example, _, _ := strings.Cut(after, "```")
	if _, err := payment.DecodeRawEvent([]byte(example)); err != nil {
		t.Error(err)
	}
}
