package payhook

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/constructs-go/constructs/v10"

	"payhook.example/shared/settings"
)

// someSubnets are settings that put the functions into subnets.
var someSubnets = map[string]any{"subnetIds": "subnet-01234567;subnet-0123456789abcdef0",
	"securityGroupIds": "sg-0123456789abcdef0"}

// reviewed are the variants of the template whose properties are in testdata: all of the first, and how each of the
// others differs from it. Every setting that changes the template has another value in one of them. The last one has no
// file: it has what else tools check.
var reviewed = []struct {
	file     string
	settings map[string]any
}{
	{"default.txt", nil},
	{"everything.txt", map[string]any{
		"keyEndpointAuth": "bearer", "alarmEmail": "ops@payments.example", "tokenStore": "parameter",
		"encryption": "cmk", "evidence": "7y", "storeRejected": "1h", "alarmSilence": "6h",
		"allowedNetworks": []any{"192.0.2.0/24", "::/1"}, "logRetentionDays": nil,
		"subnetIds": someSubnets["subnetIds"], "securityGroupIds": someSubnets["securityGroupIds"],
	}},
	{"clientcertificates.txt", mtls("both")},
	{"existing.txt", map[string]any{
		"domainName": "hook.bank.example", "certificateArn": someCertificate,
		"ledgerTable": "old-ledger", "largeEventBucket": "old-large-events", "parkingBucket": "old-parking",
		"protectBus": false, "archiveRetention": "off", "encryption": someKey,
		"alarmSilence": "7d", // of which AWS warms alarms up for two days at most
	}},
	{"numbers.txt", map[string]any{
		"webhookTimeout": "12s", "webhookConcurrency": 50, "successStatus": 202, "eventBusName": "payments",
		"largeEventRetention": "never",
		"parkedRetention":     "3653d", "archiveRetention": "90d", "logRetentionDays": 365,
		"evidence": "10d compliance", "tokenStore": "none",
	}},
	{"", with(map[string]any{
		"encryption":                        someKey,
		"@aws-cdk/core:permissionsBoundary": map[string]any{"name": "payments-boundary"},
		"@aws-cdk/core:bootstrapQualifier":  "payments",
	})},
}

var update = flag.Bool("update", false, "write the reviewed templates")

// stored are templates in files, which the CDK validates. It asks for nothing else.
type stored struct {
	stacks []*awscdk.PolicyValidationStack
}

func (s *stored) StackTemplates() *[]*awscdk.PolicyValidationStack { return &s.stacks }
func (*stored) TemplatePaths() *[]*string                          { return nil }
func (*stored) AppConstruct() constructs.IConstruct                { return nil }
func (*stored) Region() *string                                    { return nil }

//lint:ignore ST1003 It is the CDK's name.
func (*stored) AccountId() *string { return nil }

// A change of any property of a resource is seen in a review: go test ./infra/payhook -run Reviewed -update writes the
// files. The CDK, which also validates templates when it writes them, finds nothing in them.
func TestTemplatesAreAsReviewed(t *testing.T) {
	var first map[string]string
	var all stored
	for i, variant := range reviewed {
		tm, rendered := payhook(t, variant.settings), filepath.Join(t.TempDir(), fmt.Sprint(i, variant.file, ".json"))
		writeFile(t, rendered, tm.text)
		regions := []string{"eu-central-1"}
		if variant.settings["domainName"] != nil { // the others have a function URL, unknown there
			regions = append(regions, "cn-north-1", "us-gov-west-1")
		}
		for _, region := range regions {
			all.stacks = append(all.stacks, &awscdk.PolicyValidationStack{StackConstructPath: &variant.file,
				TemplatePath: &rendered, Region: &region})
		}
		if variant.file == "" {
			continue
		}
		lines := tm.properties(t)
		text := differences(first, lines)
		if first == nil {
			first = lines
		}
		file := filepath.Join("testdata", variant.file)
		if *update {
			writeFile(t, file, text)
			continue
		}
		reviewed, now := strings.Split(string(readFile(t, file)), "\n"), strings.Split(text, "\n")
		for _, line := range reviewed {
			if !slices.Contains(now, line) {
				t.Errorf("%s has, and the template has not: %s", file, line)
			}
		}
		for _, line := range now {
			if !slices.Contains(reviewed, line) {
				t.Errorf("the template has, and %s has not: %s", file, line)
			}
		}
	}
	for _, v := range *awscdk.NewCloudFormationValidatePlugin(nil).Validate(&all).Violations {
		t.Errorf("%s: %s: %s", *v.RuleName, *v.Description, toJSON(v.ViolatingResources))
	}
}

// short is the length of a list or object that is one line.
const short = 130

// properties returns the types and properties of all resources, and the outputs, by their paths. A short list or object
// is one value. It leaves out metadata, and the texts of alarms, which alarms.txt has.
func (tm *template) properties(t *testing.T) map[string]string {
	t.Helper()
	lines := map[string]string{}
	var add func(path string, value any)
	add = func(path string, value any) {
		var text strings.Builder
		to := json.NewEncoder(&text)
		to.SetEscapeHTML(false)
		if err := to.Encode(value); err != nil {
			t.Fatal(err)
		}
		members, isObject := value.(map[string]any)
		elements, isList := value.([]any)
		switch {
		case isObject && text.Len() > short:
			for key, member := range members {
				add(path+"."+key, member)
			}
		case isList && text.Len() > short:
			for i, element := range elements {
				add(fmt.Sprintf("%s[%d]", path, i), element)
			}
		default:
			lines[path] = changing.ReplaceAllString(strings.TrimSpace(text.String()), "…")
		}
	}
	for path, r := range tm.Resources {
		lines[path] = r.Type
		for name, value := range map[string]any{"DeletionPolicy": r.DeletionPolicy,
			"UpdateReplacePolicy": r.UpdateReplacePolicy, "UpdatePolicy": r.UpdatePolicy, "DependsOn": r.DependsOn} {
			if !reflect.ValueOf(value).IsZero() {
				add(path+"."+name, value)
			}
		}
		for name, value := range r.Properties {
			switch name {
			case "AlarmDescription":
			case "DashboardBody": // the widgets, without their places
				if err := json.Unmarshal([]byte(value.(string)), &value); err != nil {
					t.Fatal(err)
				}
				for _, w := range list(at(value, "widgets")) {
					shown := at(w, "properties").(map[string]any)
					title := shown["title"]
					delete(shown, "title")
					delete(shown, "alarms") // all
					add(fmt.Sprint(path, ".", title), shown)
				}
			default:
				add(path+"."+name, value)
			}
		}
	}
	for name, output := range tm.Outputs {
		if name != settings.VersionOutput {
			add("Outputs/"+name, output.Value)
		}
	}
	return lines
}

// changing matches what differs between two runs: digests of assets, and times.
var changing = regexp.MustCompile(`[0-9a-f]{64}|20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// differences writes the lines that differ from those of the first variant, or all if that is nil. Of a resource that
// only the first variant has, it writes the type.
func differences(first, lines map[string]string) string {
	all := maps.Clone(lines)
	maps.Copy(all, first)
	var text strings.Builder
	for _, path := range slices.Sorted(maps.Keys(all)) {
		resource, _, _ := strings.Cut(path, ".")
		before, now := first[path], lines[path]
		switch {
		case first == nil:
			fmt.Fprintf(&text, "%s = %s\n", path, now)
		case before == now || lines[resource] == "" && path != resource:
		default:
			if before != "" {
				fmt.Fprintf(&text, "- %s = %s\n", path, before)
			}
			if now != "" {
				fmt.Fprintf(&text, "+ %s = %s\n", path, now)
			}
		}
	}
	return text.String()
}
