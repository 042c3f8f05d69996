package lambdaruntime_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"payhook.example/shared/lambdaruntime"
	"payhook.example/shared/settings"
)

// writes counts the calls of Write.
type writes struct {
	bytes.Buffer
	calls int
}

func (w *writes) Write(p []byte) (int, error) {
	w.calls++
	return w.Buffer.Write(p)
}

func TestALineHasItsMembersAndMetrics(t *testing.T) {
	var out writes
	log := lambdaruntime.NewLog(&out, "my-stack")
	ctx := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{AwsRequestID: "request-1"})
	type ms struct {
		Record int `json:"record"`
	}
	log.Outcome(ctx, slog.LevelWarn, "webhook", struct {
		Outcome string         `json:"outcome"`
		Zero    string         `json:"zero,omitzero"`
		IDs     map[string]int `json:"ids"`
		MS      ms             `json:"ms"`
	}{"accepted \"\n<\xff>", "", map[string]int{"b": 1, "a": 2}, ms{2}},
		lambdaruntime.Value{Metric: settings.Metric{Name: "Recorded", Status: 400}, Value: 3},
		lambdaruntime.Value{Metric: settings.Metric{Name: "Age", Unit: settings.Seconds}, Value: 1.500400609})
	start, _, _ := strings.Cut(out.String(), `"Timestamp"`)
	if want := `{"level":"WARN","msg":"webhook","outcome":"accepted \"\n<` + "\uFFFD" + `>","ids":{"a":2,"b":1},` +
		`"ms":{"record":2},"Recorded":3,"Age":1.5,"StackName":"my-stack","_aws":{`; start != want {
		t.Errorf("got %s, want %s", start, want)
	}
	if strings.Count(out.String(), "\n") != 1 || out.calls != 1 {
		t.Fatalf("not one line in one write: %q", out.String())
	}
	var line struct {
		RequestID string
		AWS       struct {
			Timestamp         int64
			CloudWatchMetrics []struct {
				Namespace  string
				Dimensions [][]string
				Metrics    []struct{ Name, Unit string }
			}
		} `json:"_aws"`
	}
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	if line.RequestID != "request-1" {
		t.Errorf("got %+v", line)
	}
	d := line.AWS.CloudWatchMetrics[0]
	if d.Namespace != "Payhook" || fmt.Sprint(d.Dimensions) != "[[StackName]]" ||
		fmt.Sprint(d.Metrics) != "[{Recorded } {Age Seconds}]" {
		t.Errorf("got %+v", d)
	}
	if age := time.Since(time.UnixMilli(line.AWS.Timestamp)); age < 0 || age > time.Hour {
		t.Errorf("the timestamp is %s old", age)
	}
}

// What cannot be encoded is not lost without notice.
func TestALineIsWrittenWithoutMetricsAndWithAnError(t *testing.T) {
	for want, line := range map[string]any{
		`{"msg":"m"}`:                    struct{}{},
		`{"msg":"m","Unwritten":"json: `: struct{ A chan int }{},
	} {
		var out bytes.Buffer
		lambdaruntime.NewLog(&out, "my-stack").Outcome(t.Context(), slog.LevelInfo, "m", line)
		if !strings.HasPrefix(out.String(), want) || !strings.HasSuffix(out.String(), "}\n") {
			t.Errorf("got %q, want %q", out.String(), want)
		}
	}
}

func TestCausesHaveNoNamesOfPackages(t *testing.T) {
	for text, want := range map[string]string{
		"signature: missing: no timestamp":    "missing: no timestamp",
		"proof: damaged: keys: rejected":      "damaged: rejected",
		"line 2: ledger: bus: no":             "line 2: no",
		"the ledger: no signature: it is one": "the ledger: no signature: it is one",
		"paymenttest: no setting: token":      "no setting: token",
	} {
		if got := lambdaruntime.Cause(errors.New(text)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
