package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// codecs reads record batches as a consumer does. Each line of the input is a batch in hexadecimal digits; the answer
// is a line: the records' values in hexadecimal digits with commas between, or "!" and why the batch cannot be read.
func codecs() {
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 64<<20)
	for input.Scan() {
		values, err := valuesOf(input.Text())
		if err != nil {
			fmt.Println("!" + strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println(strings.Join(values, ","))
		}
	}
}

func valuesOf(line string) ([]string, error) {
	data, err := hex.DecodeString(line)
	if err != nil {
		return nil, err
	}
	partition := kmsg.FetchResponseTopicPartition{RecordBatches: data, HighWatermark: 1 << 40, LastStableOffset: 1 << 40}
	options := kgo.ProcessFetchPartitionOpts{Topic: "t"}
	fetched, _ := kgo.ProcessFetchPartition(options, &partition, kgo.DefaultDecompressor(), nil)
	if fetched.Err != nil {
		return nil, fetched.Err
	}
	var values []string
	for _, record := range fetched.Records {
		values = append(values, hex.EncodeToString(record.Value))
	}
	return values, nil
}
