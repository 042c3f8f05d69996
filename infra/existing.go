package main

import (
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/names"
)

// existingLedger is a ledger of this account and region that the stack uses and
// does not own: it outlives the stack, and its configuration stays as it is.
func existingLedger(scope constructs.Construct, name string) awsdynamodb.ITableV2 {
	return awsdynamodb.TableV2_FromTableAttributes(scope, jsii.String("Ledger"), &awsdynamodb.TableAttributesV2{
		TableName:     jsii.String(name),
		GlobalIndexes: jsii.Strings(names.LedgerPendingIndex),
	})
}
