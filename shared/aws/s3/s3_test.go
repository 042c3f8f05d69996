package s3_test

import (
	"testing"

	"payhook.example/shared/aws/s3"
	"payhook.example/shared/awstest"
	"payhook.example/shared/objects"
	"payhook.example/shared/storetest"
)

func TestTheBucketAndTheMemoryHaveTheSameResults(t *testing.T) {
	for seed := range uint64(20) {
		client := awstest.NewS3()
		client.MakeBucket("bucket")
		storetest.Objects(t, seed, 500, &objects.Memory{}, s3.NewBucket(client, "bucket"))
	}
}
