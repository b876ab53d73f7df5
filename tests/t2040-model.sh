#!/bin/sh
# Model directories: init, info, convert, diff, hash; what is refused and how it is named.
. "$(dirname "$0")/lib.sh"

S='--hidden 32 --layers 2 --heads 4 --kv-heads 2 --ffn 48 --vocab 20 --positions 64'

ok 'init: the same line makes the same files, another seed others' "
    verl-model init -q -o a $S --seed 3
    verl-model init -q -o b $S --seed 3
    verl-model init -q -o c $S --seed 4
    cmp a/model.safetensors b/model.safetensors
    cmp a/config.json b/config.json
    exits 1 verl-model diff a c
    exits 0 verl-model diff a b"
ok 'init is the same with any number of threads' "
    verl-model init -q -o t2 $S --seed 3 --threads 2
    cmp a/model.safetensors t2/model.safetensors"
ok 'init refuses a directory that holds something, and leaves nothing beside it' "
    exits 73 verl-model init -o a $S 2>err
    grep -q '^verl-model: a: is there already' err
    exits 64 verl-model init -o d --hidden 32 2>err
    grep -q -- --vocab err
    exits 64 verl-model init $S 2>err
    [ -z \"\$(ls -d *.aside* d 2>/dev/null)\" ]"
ok 'the stated deviation, that of o and down smaller; --no-scale-residual' "
    verl-model init -q -o s --hidden 64 --layers 2 --heads 4 --ffn 64 --vocab 100 --std 0.08
    verl-model info s --json --tensors >j
    jq -e '.tensors[] | select(.name == \"model.embed_tokens.weight\") | .rms > 0.078 and .rms < 0.082' j
    jq -e '.tensors[] | select(.name == \"model.layers.1.mlp.down_proj.weight\") | .rms > 0.038 and .rms < 0.042' j
    verl-model init -q -o s2 --hidden 64 --layers 2 --heads 4 --ffn 64 --vocab 100 --std 0.08 --no-scale-residual
    verl-model info s2 --json --tensors >j
    jq -e '.tensors[] | select(.name == \"model.layers.1.mlp.down_proj.weight\") | .rms > 0.078 and .rms < 0.082' j"
for arch in llama qwen2 qwen3 mistral; do
    ok "$arch: shards and back to one file, bit for bit; a bf16 copy twice is the same" "
        verl-model init -q -o $arch $S --arch $arch --eos-id 1
        verl-model convert -q $arch -o $arch.n --shard-size 9000
        [ -f $arch.n/model.safetensors.index.json ]
        [ ! -f $arch.n/model.safetensors ]
        verl-model convert -q $arch.n -o $arch.1
        cmp $arch/model.safetensors $arch.1/model.safetensors
        equal \"\$(verl-model hash $arch | cut -c-32)\" \"\$(verl-model hash $arch.n | cut -c-32)\"
        verl-model convert -q $arch -o $arch.h --dtype bf16
        verl-model convert -q $arch.h -o $arch.h2
        cmp $arch.h/model.safetensors $arch.h2/model.safetensors
        verl-model info $arch --json | jq -e '.stop_ids == [1] and .layers == 2'"
done
ok 'unknown members of config.json survive a save' "
    cp -r a k
    sed -i 's/{/{\"my_member\": [1, 2.50, {\"x\": \"y\"}],/' k/config.json
    verl-model convert -q k -o k2
    jq -e '.my_member == [1, 2.5, {\"x\": \"y\"}]' k2/config.json
    grep -q '2.50' k2/config.json"
ok 'a value head: made by convert with zeros, read back, refused as a language model' "
    verl-model convert -q a -o v --value-head
    verl-model info v --json | jq -e '.head == \"value\" and .architecture == \"LlamaForTokenClassification\"'
    verl-model info v --tensors | grep -q '^score.weight  *\[1, 32\]  *0  *0'"
ok 'a reward model: made by init, kept by convert, made a critic and back, refused as a language model' "
    verl-model init -q -o rm $S --head reward
    verl-model info rm | grep -q 'head reward (scalar)'
    verl-model convert -q rm -o rm2 --dtype bf16
    verl-model info rm2 --json | jq -e '.head == \"reward\" and .architecture == \"LlamaForSequenceClassification\"'
    jq -e '.id2label | length == 1' rm2/config.json
    verl-model convert -q rm -o rmv --head value
    verl-model info rmv --json | jq -e '.head == \"value\"'
    verl-model convert -q rmv -o rm3 --head reward
    verl-model diff rm rm3
    verl-model info rm3 --json | jq -e '.head == \"reward\"'
    exits 65 verl-model convert -q rm -o no --head lm 2>err
    grep -q 'rm: holds a value head (a critic or a reward model)' err"
ok 'init --value-head has random ones' "
    verl-model init -q -o v2 $S --value-head
    verl-model info v2 --json --tensors | jq -e '.tensors[] | select(.name == \"score.weight\") | .rms > 0'"
ok 'a directory that is not what its config.json says: 65 naming file and tensor' "
    cp -r a x
    sed -i 's/\"intermediate_size\": 48/\"intermediate_size\": 40/' x/config.json
    exits 65 verl-model info x 2>err
    grep -q 'x/model.safetensors: tensor model.layers.0.mlp.gate_proj.weight has shape .48, 32.; config.json makes it .40, 32.' err
    cp -r a y
    sed -i 's/\"num_hidden_layers\": 2/\"num_hidden_layers\": 3/' y/config.json
    exits 65 verl-model info y 2>err
    grep -q 'tensor model.layers.2.input_layernorm.weight is missing' err
    cp -r a z
    sed -i 's/\"num_hidden_layers\": 2/\"num_hidden_layers\": 1/' z/config.json
    exits 65 verl-model info z 2>err
    grep -q 'tensor model.layers.1.input_layernorm.weight has no place' err
    cp -r a w
    sed -i 's/\"tie_word_embeddings\": false/\"tie_word_embeddings\": true/' w/config.json
    exits 65 verl-model info w 2>err
    grep -q 'lm_head.weight differs from model.embed_tokens.weight' err"
ok 'what is not implemented is refused by name' "
    cp -r a g
    sed -i 's/\"model_type\": \"llama\"/\"model_type\": \"gemma2\"/; s/LlamaForCausalLM/Gemma2ForCausalLM/' g/config.json
    exits 65 verl-model info g 2>err
    grep -q Gemma2ForCausalLM err
    sed -i 's/\"Gemma2ForCausalLM\"/3/; s/gemma2/llama/' g/config.json
    exits 65 verl-model info g 2>err
    grep -q 'architectures is 3; expected class names' err
    cp -r a h
    sed -i 's/\"hidden_act\": \"silu\"/\"hidden_act\": \"gelu\"/' h/config.json
    exits 65 verl-model info h 2>err
    grep -q gelu err"
ok 'a cut or missing file' "
    cp -r a cut
    truncate -s -5 cut/model.safetensors
    exits 65 verl-model info cut 2>err
    grep -q cut/model.safetensors err
    exits 66 verl-model info none 2>err
    cp -r llama.n shard
    rm shard/model-00002-of-*
    exits 66 verl-model info shard 2>err
    grep -q 'shard/model-00002' err
    mkdir e
    exits 66 verl-model info e 2>err
    exits 64 verl-model inof a 2>err
    grep -q 'known: init' err"
ok 'output to a full disk is noticed' "
    exits 74 verl-model info a >/dev/full 2>err
    exits 73 verl-model init -o /dev/full/m $S 2>err"

if [ -n "$SHARED" ]; then
    for m in stories260k aidreams260k tiny_llama3 tiny_mistral tiny_qwen3; do
        ok "$m: read; a copy under our own hand reads the same" "
            verl-model convert -q $SHARED/data/models/$m -o $m
            exits 0 verl-model diff $SHARED/data/models/$m $m"
    done
    ok 'tokenizer files and stop ids go with the model' "
        cmp $SHARED/data/models/stories260k/tokenizer.json stories260k/tokenizer.json
        verl-model info --json stories260k | jq -e '.stop_ids == [2]'
        verl-model init -q -o withtok --hidden 32 --layers 1 --heads 2 --tokenizer stories260k
        verl-model info --json withtok | jq -e '.vocab == 512 and .stop_ids == [2]'"
else
    skip 'no shared data (set VERL_SHARED to its folder)'
fi
done_testing
