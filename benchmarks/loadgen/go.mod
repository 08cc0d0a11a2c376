module headrace/loadgen

go 1.19
