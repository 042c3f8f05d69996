package payhook

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
	"github.com/google/go-cmp/cmp"
)

func TestInvalidTemplatesFailTheSynthesis(t *testing.T) {
	app, stack := newPayhook(t, nil)
	awscdk.NewCfnResource(stack, jsii.String("Bad"), &awscdk.CfnResourceProps{
		Type:       jsii.String("AWS::SQS::Queue"),
		Properties: &map[string]any{"NoSuchProperty": "x"},
	})
	err := synthesize(app)
	if err == nil {
		t.Fatal("it was synthesized")
	}
	if !strings.Contains(err.Error(), "NoSuchProperty") && !strings.Contains(err.Error(), "alidation") {
		t.Errorf("got %v", err)
	}
}

func TestEveryRecommendedFeatureFlagIsSet(t *testing.T) {
	set := flags(t)
	for flag, want := range recommendedFlags(t) {
		if !cmp.Equal(set[flag], want) {
			t.Errorf("cdk.json: %s is %v, recommended is %v", flag, set[flag], want)
		}
	}
	if set["@aws-cdk/core:validateAgainstDefaultRules"] != true {
		t.Error("what is wrong with a template would be a warning")
	}
}

// recommendedFlags reads the flags that the CDK library in use recommends for
// new apps, from its own package.
func recommendedFlags(t *testing.T) map[string]any {
	t.Helper()
	folder, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/aws/aws-cdk-go/awscdk/v2").Output()
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(folder)), "jsii", "aws-cdk-lib-*.tgz"))
	if err != nil || len(found) != 1 {
		t.Fatalf("found %q: %v", found, err)
	}
	file, err := os.Open(found[0])
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewReader(unzipped)
	for {
		entry, err := archive.Next()
		if errors.Is(err, io.EOF) {
			t.Fatal("the library has no recommended-feature-flags.json")
		}
		if err != nil {
			t.Fatal(err)
		}
		if entry.Name == "package/recommended-feature-flags.json" {
			var flags map[string]any
			if err := json.NewDecoder(archive).Decode(&flags); err != nil {
				t.Fatal(err)
			}
			return flags
		}
	}
}
