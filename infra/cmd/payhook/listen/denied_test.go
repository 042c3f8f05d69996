package listen

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"payhook.example/infra/cmd/payhook/cli"
)

// TestADeniedCallIsNamed denies each action of the documented policy once. The command must
// end with 3 or go on without what it lacks, and name the action.
func TestADeniedCallIsNamed(t *testing.T) {
	denials := map[string]struct {
		operation string // the action's, if it has another name
		leftover  bool   // whether an earlier run left something behind
		endAt     string // "": it ends when it is ready
		status    int
		says      string
	}{
		"cloudformation:DescribeStacks": {status: cli.StatusUnreachable, endAt: "never"},
		"logs:FilterLogEvents":          {status: cli.StatusUnreachable, endAt: "never"},
		"events:ListRules":              {status: cli.StatusUnreachable, endAt: "never"},
		"events:PutRule":                {status: cli.StatusUnreachable, endAt: "never", says: "the temporary rule: "},
		"events:PutTargets":             {status: cli.StatusUnreachable, endAt: "never", says: "the target of"},
		"events:ListTagsForResource":    {status: cli.StatusUnreachable, endAt: "never", leftover: true},
		"events:TestEventPattern":       {endAt: "TestEventPattern", says: `"rulesUnknown":`},
		"events:RemoveTargets":          {says: "are left behind ("},
		"events:DeleteRule":             {says: "are left behind ("},
		"sqs:CreateQueue":               {status: cli.StatusUnreachable, endAt: "never", says: "the temporary queue: "},
		"sqs:GetQueueUrl":               {status: cli.StatusUnreachable, endAt: "never", leftover: true},
		"sqs:ReceiveMessage":            {status: cli.StatusUnreachable, endAt: "never", says: "the temporary queue: "},
		"sqs:DeleteMessage": {status: cli.StatusUnreachable, endAt: "never",
			operation: "DeleteMessageBatch"},
		"sqs:DeleteQueue": {says: "are left behind ("},
	}
	text, err := os.ReadFile("policy.json")
	if err != nil {
		t.Fatal(err)
	}
	var policy struct{ Statement []struct{ Action any } }
	if err := json.Unmarshal(text, &policy); err != nil {
		t.Fatal(err)
	}
	for action, d := range denials {
		c := newCloud(t)
		_, operation, _ := strings.Cut(action, ":")
		if d.operation != "" {
			operation = d.operation
		}
		c.addRule("released", `{"a":["1"]}`, nil)
		if d.leftover {
			name := Prefix + "0123456789ab"
			c.addRule(name, everything, map[string]string{programTag: program, ownerTag: "me",
				expiresTag: noon.Format(time.RFC3339)})
			c.queues[name] = &queue{}
		}
		published := false
		c.fail = func(called string) string {
			if called == "ReceiveMessage" && !published && len(c.queues) > 0 {
				published = true
				c.publish(envelope("1", "d1", "e1"))
			}
			if called == operation {
				return "AccessDeniedException"
			}
			return ""
		}
		out, said, status := listen(t, c, d.endAt, "--json")
		if said := strings.Join(strings.Fields(out+said), " "); status != d.status ||
			!strings.Contains(said, operation) || !strings.Contains(said, d.says) {
			t.Errorf("without %s: %d, want %d\n%s", action, status, d.status, said)
		}
	}

	// PutRule and CreateQueue need them if they set tags.
	documented := []string{"events:TagResource", "sqs:TagQueue"}
	for _, s := range policy.Statement {
		switch a := s.Action.(type) {
		case string:
			documented = append(documented, a)
		case []any:
			for _, one := range a {
				documented = append(documented, one.(string))
			}
		}
	}
	slices.Sort(documented)
	denied := slices.AppendSeq([]string{"events:TagResource", "sqs:TagQueue"}, maps.Keys(denials))
	slices.Sort(denied)
	if documented = slices.Compact(documented); !slices.Equal(denied, documented) {
		t.Errorf("the policy has %q, and %q are denied here", documented, denied)
	}
}
