package payhook

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

func TestMain(m *testing.M) {
	builtFunctions[variant{"arm64", false}], _ = programs("of ExampleNew")("", false)
	status := m.Run()
	jsii.Close()
	os.RemoveAll(filepath.Dir(truststores()[0]))
	os.Exit(status)
}

// required are the settings that have no default.
var required = map[string]any{
	"baseUrl":        "https://api.payments.example",
	"authUrl":        "https://auth.payments.example",
	"tokenManagerId": "manager-1",
	"stackName":      "Bank",
}

// local are those of a deployment to an emulator.
var local = map[string]any{settings.LocalKey: true}

// newApp creates an app with the context of cdk.json and of the settings. It
// writes into a folder that the test removes.
func newApp(t *testing.T, conf ...map[string]any) awscdk.App {
	t.Helper()
	// With this mode, errors of the synthesis are only in the error that it returns.
	context := map[string]any{"aws:cdk:enable-path-metadata": true, "@aws-cdk/core:appMode": "inmemory"}
	maps.Copy(context, flags(t))
	for _, s := range conf {
		maps.Copy(context, s)
	}
	return awscdk.NewApp(&awscdk.AppProps{
		AutoSynth:                       jsii.Bool(false),
		BuiltinCloudFormationValidation: jsii.Bool(false), // TestTemplatesAreAsReviewed does it
		Context:                         &context,
		Outdir:                          jsii.String(t.TempDir()),
	})
}

// newPayhook creates the construct in a stack of its own app, with functions that all have one program.
func newPayhook(t *testing.T, program string, conf ...map[string]any) (awscdk.App, *Payhook) {
	t.Helper()
	app := newApp(t, append([]map[string]any{required}, conf...)...)
	stack, props := newStack(t, app, "nowhere")
	return app, create(stack, jsii.String("Default"), props, programs(program))
}

// newStack creates the stack of an app whose settings are in its context and in a folder.
func newStack(t *testing.T, app awscdk.App, folder string) (awscdk.Stack, *Props) {
	t.Helper()
	props, stack, err := ReadSettings(app, folder)
	if err != nil {
		t.Fatal(err)
	}
	return awscdk.NewStack(app, jsii.String("Payhook"), stack), props
}

// programs replaces the build of the functions, which then all have one program.
func programs(program string) func(arch string, fips bool) (map[string][]byte, error) {
	text := []byte(program)
	return func(string, bool) (map[string][]byte, error) {
		return map[string][]byte{"webhook": text, "redrive": text, "token": text}, nil
	}
}

// synthesize does what a deployment does, including its error report, but prints no warnings about settings.
func synthesize(app awscdk.App) (err error) {
	for _, key := range []string{"alarmEmail", useKeyWarning} {
		awscdk.Annotations_Of(app).AcknowledgeWarning(jsii.String("payhook:"+key), nil)
	}
	defer func() {
		if p := recover(); p != nil {
			var ok bool
			if err, ok = p.(error); !ok {
				panic(p)
			}
		}
	}()
	app.Synth(nil)
	return nil
}

// template is a CloudFormation template. Its resources are named by their path in the construct tree, such as
// Webhook/Function. References have these names: Ledger for the resource, Ledger.Arn for its attribute, both also
// within longer texts.
type template struct {
	text      string // as it is deployed
	Resources map[string]*resource
	Outputs   map[string]struct {
		Value       any
		Description string
	}

	names map[string]string // by logical id
}

type resource struct {
	Type                string
	Properties          map[string]any
	DeletionPolicy      string
	UpdateReplacePolicy string
	UpdatePolicy        map[string]any
	DependsOn           []string
	Metadata            map[string]any
}

var templates = map[string]*template{}

// payhook returns the template for the required and the given settings.
func payhook(t *testing.T, conf ...map[string]any) *template {
	t.Helper()
	all := map[string]any{}
	for _, s := range conf {
		maps.Copy(all, s)
	}
	key := fmt.Sprint(all)
	if templates[key] == nil {
		templates[key] = synthesized(t, "", all)
	}
	return templates[key]
}

// synthesized returns the template with a program of the functions.
func synthesized(t *testing.T, program string, conf ...map[string]any) *template {
	t.Helper()
	app, p := newPayhook(t, program, conf...)
	if err := synthesize(app); err != nil {
		t.Fatal(err)
	}
	return readTemplate(t, filepath.Join(*app.Outdir(), *awscdk.Stack_Of(p).TemplateFile()))
}

func readTemplate(t *testing.T, file string) *template {
	t.Helper()
	text := readFile(t, file)
	read := &template{text: string(text), names: map[string]string{}}
	var raw map[string]map[string]any
	if err := json.Unmarshal(text, &raw); err != nil {
		t.Fatal(err)
	}
	byName := map[string]any{}
	for id, r := range raw["Resources"] {
		path, _ := at(r, "Metadata", "aws:cdk:path").(string)
		read.names[id] = strings.TrimSuffix(strings.TrimPrefix(path, "Payhook/Default/"), "/Resource")
		byName[read.names[id]] = r
	}
	if len(byName) != len(read.names) {
		t.Fatalf("two resources have one path: %v", read.names)
	}
	plain, err := json.Marshal(read.plain(map[string]any{"Resources": byName, "Outputs": raw["Outputs"]}))
	if err == nil {
		err = json.Unmarshal(plain, read)
	}
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// plain replaces the references in a value.
func (tm *template) plain(value any) any {
	switch v := value.(type) {
	case string:
		return cmp.Or(tm.names[v], v) // a logical id
	case []any:
		for i := range v {
			v[i] = tm.plain(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = tm.plain(v[key])
		}
		if len(v) > 1 {
			return v
		}
		if parts, ok := v["Fn::GetAtt"].([]any); ok {
			return fmt.Sprint(parts[0], ".", parts[1])
		}
		if join, ok := v["Fn::Join"].([]any); ok {
			text := ""
			for i, part := range join[1].([]any) {
				if i > 0 {
					text += join[0].(string)
				}
				text += fmt.Sprint(part)
			}
			return text
		}
		return cmp.Or(v["Ref"], v["Fn::Sub"], value)
	}
	return value
}

// get returns a resource by its path.
func (tm *template) get(t *testing.T, name, kind string) *resource {
	t.Helper()
	r := tm.Resources[name]
	if r == nil || r.Type != kind {
		t.Fatalf("no %s named %s among %q", kind, name, slices.Sorted(maps.Keys(tm.Resources)))
	}
	return r
}

// all returns the resources of a kind by their path.
func (tm *template) all(t *testing.T, kind string) map[string]*resource {
	t.Helper()
	found := map[string]*resource{}
	for name, r := range tm.Resources {
		if r.Type == kind {
			found[name] = r
		}
	}
	if len(found) == 0 {
		t.Fatalf("no %s in the template", kind)
	}
	return found
}

// at returns the value at a path of member names and element positions, or nil if there is none.
func at(value any, path ...any) any {
	for _, step := range path {
		switch s := step.(type) {
		case string:
			m, _ := value.(map[string]any)
			value = m[s]
		case int:
			l, _ := value.([]any)
			if s >= len(l) {
				return nil
			}
			value = l[s]
		}
	}
	return value
}

func flags(t *testing.T) map[string]any {
	t.Helper()
	var config struct{ Context map[string]any }
	if err := json.Unmarshal(readFile(t, filepath.Join("..", "..", "cdk.json")), &config); err != nil {
		t.Fatal(err)
	}
	return config.Context
}

// parse reads settings as the app does.
func parse(t *testing.T, conf ...map[string]any) (settings.Settings, error) {
	t.Helper()
	stack, props := newStack(t, newApp(t, conf...), "nowhere")
	return props.resolve(stack)
}

// With Node 20, whose support has ended, the CDK's library writes a banner. The
// command in cdk.json keeps it away from above the errors.
func TestInvalidSettingsWriteAMessageAndNoTemplate(t *testing.T) {
	var cdk struct{ Build, App string }
	if err := json.Unmarshal(readFile(t, filepath.Join("..", "..", "cdk.json")), &cdk); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	app := exec.CommandContext(t.Context(), "sh", "-c", cdk.Build+" && "+cdk.App)
	app.Dir = "../.."
	// make sets JSII_ variables, and users may not.
	app.Env = append(slices.DeleteFunc(os.Environ(),
		func(variable string) bool { return strings.HasPrefix(variable, "JSII_") }),
		"CDK_OUTDIR="+out, `CDK_CONTEXT_JSON={"baseUrl":"nowhere","loca":"true"}`)
	output, err := app.CombinedOutput()
	if app.ProcessState.ExitCode() != 1 || !strings.HasPrefix(string(output), "payhook: nothing was synthesized") {
		t.Errorf("%v\n%s", err, output)
	}
	for _, want := range []string{"baseUrl=nowhere (-c or cdk.json): must be an https URL", "authUrl: is required",
		"tokenManagerId: is required", "loca=true (-c or cdk.json): no such setting"} {
		if !strings.Contains(string(output), want) {
			t.Errorf("no %q in\n%s", want, output)
		}
	}
	if strings.Contains(string(output), "goroutine") || strings.Contains(string(output), "panic") {
		t.Errorf("a stack trace:\n%s", output)
	}
	if written, _ := filepath.Glob(filepath.Join(out, "*.template.json")); written != nil {
		t.Errorf("written: %q", written)
	}
}
