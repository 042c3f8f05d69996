package acceptance

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// awsOverHTTP is an account with one stack and some tagged resources. It records what is asked
// for, as Operation and the main parameter.
type awsOverHTTP struct {
	t       *testing.T
	stack   string            // its name
	tag     string            // its tag of a run
	tagged  map[string]string // the runs in the tags of other resources, by ARN
	stackOf map[string]string // the stacks in the descriptions of keys, by ARN
	pending map[string]bool   // keys that are pending deletion
	mu      sync.Mutex
	calls   []string
	deleted bool
}

func (a *awsOverHTTP) target(t *testing.T) Target {
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	return Target{AWS: aws.Config{Region: "us-east-1", BaseEndpoint: &server.URL,
		Credentials: credentials.NewStaticCredentialsProvider("x", "x", "")}}
}

func (a *awsOverHTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		a.t.Error(err)
	}
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if operation == "" {
		form, err := url.ParseQuery(string(body))
		if err != nil {
			a.t.Error(err)
		}
		w.Header().Set("Content-Type", "text/xml")
		a.query(w, form)
		return
	}
	var in struct {
		KeyID               string `json:"KeyId"`
		PendingWindowInDays int
		TagFilters          []struct{ Values []string }
	}
	if err := json.Unmarshal(body, &in); err != nil {
		a.t.Error(err)
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	reply := func(out any) {
		if err := json.NewEncoder(w).Encode(out); err != nil {
			a.t.Error(err)
		}
	}
	const later = 1790000000
	switch operation {
	case "GetResources":
		var all []any
		for resource, run := range a.tagged {
			if len(in.TagFilters[0].Values) == 0 || slices.Contains(in.TagFilters[0].Values, run) {
				all = append(all, map[string]any{"ResourceARN": resource,
					"Tags": []any{map[string]string{"Key": RunTag, "Value": run}}})
			}
		}
		reply(map[string]any{"ResourceTagMappingList": all})
	case "DescribeKey":
		metadata := map[string]any{"KeyId": in.KeyID, "KeyState": "Enabled",
			"Description": "Payhook: " + a.stackOf[in.KeyID] + ", all stored data"}
		if a.pending[in.KeyID] {
			metadata["KeyState"], metadata["DeletionDate"] = "PendingDeletion", later
		}
		reply(map[string]any{"KeyMetadata": metadata})
	case "ScheduleKeyDeletion":
		a.calls = append(a.calls, fmt.Sprintf("%s %s in %d days", operation, in.KeyID, in.PendingWindowInDays))
		a.pending[in.KeyID] = true
		reply(map[string]any{"KeyId": in.KeyID, "DeletionDate": later, "KeyState": "PendingDeletion"})
	case "DescribeLogGroups", "ListSecrets":
		reply(map[string]any{})
	default:
		a.calls = append(a.calls, operation)
		w.WriteHeader(http.StatusBadRequest)
	}
}

// query answers the services with the query protocol.
func (a *awsOverHTTP) query(w io.Writer, form url.Values) {
	answer := func(content string) {
		operation := form.Get("Action")
		fmt.Fprintf(w, "<%[1]sResponse><%[1]sResult>%[2]s</%[1]sResult></%[1]sResponse>", operation, content)
	}
	switch form.Get("Action") {
	case "DescribeStacks":
		status := "CREATE_COMPLETE"
		if a.deleted {
			if form.Get("StackName") == "" { // deleted stacks are not listed
				answer("<Stacks></Stacks>")
				return
			}
			status = "DELETE_COMPLETE"
		}
		answer(fmt.Sprintf("<Stacks><member><StackName>%s</StackName><StackId>arn:%[1]s</StackId><StackStatus>%s"+
			"</StackStatus><Tags><member><Key>%s</Key><Value>%s</Value></member></Tags></member></Stacks>", a.stack,
			status, RunTag, a.tag))
	case "ListStackResources":
		answer("<StackResourceSummaries><member><ResourceType>AWS::IAM::Role</ResourceType>" +
			"<PhysicalResourceId>the-role</PhysicalResourceId><ResourceStatus>CREATE_COMPLETE</ResourceStatus>" +
			"</member></StackResourceSummaries>")
	case "DeleteRolePolicy":
		a.calls = append(a.calls, "DeleteRolePolicy "+form.Get("RoleName")+" "+form.Get("PolicyName"))
		answer("")
	case "DeleteStack":
		a.calls = append(a.calls, "DeleteStack "+form.Get("StackName"))
		a.deleted = true
		answer("")
	default:
		a.calls = append(a.calls, form.Get("Action"))
	}
}

const (
	testRun  = "abcd2345"
	keyARN   = "arn:aws:kms:us-east-1:1:key/"
	ownStack = prefix + testRun
)

func TestTheCleanupDeletesTheStackAndTheKeyOfTheRunOnly(t *testing.T) {
	account := &awsOverHTTP{t: t, stack: ownStack, tag: testRun, pending: map[string]bool{},
		tagged: map[string]string{keyARN + "own": testRun, keyARN + "tagged": testRun, keyARN + "other": "other234"},
		stackOf: map[string]string{keyARN + "own": ownStack, keyARN + "tagged": "Payhook",
			keyARN + "other": prefix + "other234"}}
	to := account.target(t)
	say := func(string, ...any) {}
	after, err := Cleanup(t.Context(), to, testRun, say)
	if err != nil || len(after.Left) > 0 || len(after.Scheduled) != 1 ||
		!strings.HasPrefix(after.Scheduled[0], keyARN+"own,") {
		t.Errorf("what remains is %+v, %v", after, err)
	}
	// A role with a policy that CloudFormation does not know could not be deleted.
	want := []string{"DeleteRolePolicy the-role " + denyPolicy, "DeleteStack " + ownStack,
		"ScheduleKeyDeletion " + keyARN + "own in 7 days"}
	if !slices.Equal(account.calls, want) {
		t.Errorf("the calls are %q, want %q", account.calls, want)
	}
	again, err := Cleanup(t.Context(), to, testRun, say)
	if err != nil || !slices.Equal(again.Scheduled, after.Scheduled) || len(account.calls) != len(want) {
		t.Errorf("the second time, %+v remains, %v; the calls are %q", again, err, account.calls)
	}
	// A key that is pending deletion is no reason to clean up.
	if runs, err := Runs(t.Context(), to); err != nil || !slices.Equal(runs, []string{"other234"}) {
		t.Errorf("the runs are %q, %v", runs, err)
	}
}

func TestAStackWithoutTheTagOfTheRunIsNotDeleted(t *testing.T) {
	for _, tag := range []string{"", "other234"} {
		account := &awsOverHTTP{t: t, stack: ownStack, tag: tag}
		_, err := Cleanup(t.Context(), account.target(t), testRun, func(string, ...any) {})
		if err == nil || len(account.calls) > 0 {
			t.Errorf("with the tag %q: %v, the calls are %q", tag, err, account.calls)
		}
	}
}
