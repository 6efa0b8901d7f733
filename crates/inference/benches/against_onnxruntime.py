"""The built-in encoder against onnxruntime, in one run, in turns, one thread each.

    cargo build --release -p merkwelt-inference --example encode
    python -m venv v && v/bin/pip install numpy onnx onnxruntime
    v/bin/python crates/inference/benches/against_onnxruntime.py target/release/examples/encode DIRECTORY_OF_THE_MODEL

The graph is made from the dequantised weights of our own model file, so both compute the same model, and
quantised by onnxruntime itself (dynamic, 8 bit). Vectors of all three are checked against recorded ones.
What is compared is processor time, so other work on the machine disturbs little. onnxruntime is given token
ids that are ready; our time includes the tokeniser.
"""
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import unicodedata

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

HERE = os.path.dirname(os.path.abspath(__file__))
SHORT = "Wann läuft mein Vertrag ab?"
SENTENCE = ("Die Kündigung muss spätestens drei Monate vor dem Ende der Vertragslaufzeit schriftlich bei der "
            "zuständigen Geschäftsstelle eingegangen sein, sonst verlängert er sich.")
BATCH = [
    "Die Lieferung verzögert sich um zwei Wochen.", "Our office in Hamburg is closed on Fridays.", SENTENCE,
    "Frau Berger möchte Rechnungen nur noch per E-Mail erhalten.", "The contract ends on 31 December.",
    "Der Aufsichtsrat hat dem Haushalt für das nächste Jahr in seiner letzten Sitzung zugestimmt.", "Bitte per Du.",
    "Support tickets with priority one must be answered within four hours, also at weekends and on holidays.",
    "Das Lager in Leipzig nimmt ab März keine Paletten über 1,80 m mehr an.", "He prefers tea.",
    "Für Anträge nach § 14 ist das Referat 3 zuständig; Fristen beginnen mit dem Eingang der vollständigen Unterlagen.",
    "The customer asked for a quote for 250 licences, valid until the end of the quarter.", "Server 12 wurde ersetzt.",
    "Reisekosten über 500 Euro brauchen die Unterschrift der Abteilungsleitung.", "Berlin, nicht Bonn.",
    "After the migration all passwords have to be reset once; the old ones stop working on Monday morning.",
]


class File:
    """The model file: shape, tokeniser, weights."""

    def __init__(self, path):
        b = self.bytes = open(path, "rb").read()
        self.hidden, self.layers, self.heads, self.inner, self.words, self.positions, self.types = struct.unpack_from("<7i", b, 8)
        self.epsilon, _ = struct.unpack_from("<fi", b, 36)
        n, self.begin, self.end, self.pad, self.unknown = struct.unpack_from("<5i", b, 44)
        text_len, = struct.unpack_from("<Q", b, 64)
        at = 72
        offsets = np.frombuffer(b, np.uint32, n + 1, at)
        at += 4 * (n + 1)
        scores = np.frombuffer(b, np.float32, n, at)
        at += 4 * n
        blob, at = b[at:at + text_len], at + text_len
        special = {self.begin, self.end, self.pad, self.unknown}
        self.pieces = {blob[offsets[i]:offsets[i + 1]].decode(): (i, float(scores[i]))
                       for i in range(n) if i not in special and scores[i] != 0.0}
        self.unknown_score = float(scores.min()) - 10.0
        entries, table = struct.unpack_from("<iI", b, at)
        at += 8
        self.replace, place = {}, at
        for _ in range(entries):
            c, n_to = struct.unpack_from("<IB", b, place)
            self.replace[chr(c)] = "".join(map(chr, struct.unpack_from(f"<{n_to}I", b, place + 5)))
            place += 5 + 4 * n_to
        at += table
        n_tensors, = struct.unpack_from("<i", b, at)
        at += 4
        self.tensors = {}
        for _ in range(n_tensors):
            length, = struct.unpack_from("<H", b, at)
            name = b[at + 2:at + 2 + length].decode()
            self.tensors[name] = struct.unpack_from("<BIQQ", b, at + 2 + length)
            at += 2 + length + 21

    def tensor(self, name, *shape):
        kind, n, offset, _ = self.tensors[name]
        if kind == 0:
            return np.frombuffer(self.bytes, np.float32, n, offset).reshape(shape)
        blocks = np.frombuffer(self.bytes, np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)]), n // 32, offset)
        values = np.concatenate([blocks["nibbles"] & 15, blocks["nibbles"] >> 4], axis=1).astype(np.float32) - 8
        return (values * blocks["scale"].astype(np.float32)[:, None]).reshape(shape)

    def ids(self, text):
        text = "".join(self.replace.get(c, c) for c in unicodedata.normalize("NFC", text))
        found = []
        # Spaces collapse; one at the end counts.
        for word in [word for word in text.split(" ") if word] + [""] * text.endswith(" "):
            word = "\u2581" + word
            best = [(0.0, None, None)] + [None] * len(word)
            for at in range(len(word)):
                if best[at] is None:
                    continue
                for end in range(at + 1, min(len(word), at + 32) + 1):
                    piece = self.pieces.get(word[at:end])
                    if piece is None and end > at + 1:
                        continue
                    which, score = piece or (self.unknown, self.unknown_score)
                    score += best[at][0]
                    if best[end] is None or score > best[end][0]:
                        best[end] = (score, at, which)
            path, at = [], len(word)
            while at > 0:
                _, before, which = best[at]
                if not (which == self.unknown and path and path[-1] == self.unknown):
                    path.append(which)
                at = before
            found += reversed(path)
        return [self.begin] + found + [self.end]


def graph(file, path):
    """The encoder as exporters write it, without pooling; onnxruntime fuses what it can."""
    nodes, weights, names = [], [], iter(range(10**6))
    d, heads, width = file.hidden, file.heads, file.hidden // file.heads

    def constant(value):
        name = f"c{next(names)}"
        weights.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def op(kind, *inputs, **attributes):
        name = f"t{next(names)}"
        nodes.append(helper.make_node(kind, list(inputs), [name], name=f"n{name}", **attributes))
        return name

    def linear(x, name, outputs, inputs):
        product = op("MatMul", x, constant(file.tensor(f"{name}.w", outputs, inputs).T))
        return op("Add", product, constant(file.tensor(f"{name}.b", outputs)))

    def norm(x, name):
        scale, bias = constant(file.tensor(f"{name}.w", d)), constant(file.tensor(f"{name}.b", d))
        return op("LayerNormalization", x, scale, bias, axis=-1, epsilon=file.epsilon)

    def split(x, transposed):
        x = op("Reshape", x, constant(np.array([0, 0, heads, width], np.int64)))
        return op("Transpose", x, perm=[0, 2, 3, 1] if transposed else [0, 2, 1, 3])

    table = file.tensor("emb.pos", file.positions, d) + file.tensor("emb.type", file.types, d)[0]
    x = op("Gather", constant(file.tensor("emb.word", file.words, d)), "ids", axis=0)
    x = norm(op("Add", x, op("Gather", constant(table), "places", axis=0)), "emb.ln")
    mask = op("Cast", op("Unsqueeze", "mask", constant(np.array([1, 2], np.int64))), to=TensorProto.FLOAT)
    mask = op("Mul", op("Sub", constant(np.float32(1)), mask), constant(np.float32(np.finfo(np.float32).min)))
    for n in range(file.layers):
        q, k, v = (split(linear(x, f"l{n}.{part}", d, d), part == "k") for part in "qkv")
        scores = op("Div", op("MatMul", q, k), constant(np.float32(width**0.5)))
        mixed = op("MatMul", op("Softmax", op("Add", scores, mask), axis=-1), v)
        mixed = op("Reshape", op("Transpose", mixed, perm=[0, 2, 1, 3]), constant(np.array([0, 0, d], np.int64)))
        x = norm(op("Add", linear(mixed, f"l{n}.ao", d, d), x), f"l{n}.aln")
        wide = linear(x, f"l{n}.fi", file.inner, d)
        bent = op("Add", op("Erf", op("Div", wide, constant(np.float32(2**0.5)))), constant(np.float32(1)))
        wide = op("Mul", op("Mul", wide, bent), constant(np.float32(0.5)))
        x = norm(op("Add", linear(wide, f"l{n}.fo", d, file.inner), x), f"l{n}.oln")
    nodes[-1].output[0] = "tokens"
    made = helper.make_graph(
        nodes, "e5", [helper.make_tensor_value_info(name, TensorProto.INT64, shape)
                      for name, shape in (("ids", ["b", "n"]), ("mask", ["b", "n"]), ("places", ["n"]))],
        [helper.make_tensor_value_info("tokens", TensorProto.FLOAT, ["b", "n", d])], weights)
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


class Onnx:
    def __init__(self, path):
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        wall, busy = time.perf_counter(), time.process_time()
        self.session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.load = (time.perf_counter() - wall, time.process_time() - busy)

    def embed(self, ids, repeat):
        longest = max(map(len, ids))
        tokens, mask = np.ones((len(ids), longest), np.int64), np.zeros((len(ids), longest), np.int64)
        for row, text in enumerate(ids):
            tokens[row, :len(text)], mask[row, :len(text)] = text, 1
        began = time.process_time()
        for _ in range(repeat):
            x, = self.session.run(None, {"ids": tokens, "mask": mask, "places": np.arange(longest)})
            x = (x * mask[:, :, None]).sum(1) / mask.sum(1)[:, None]
            x /= np.linalg.norm(x, axis=1, keepdims=True)
        return (time.process_time() - began) / repeat, x


class Own:
    def __init__(self, program, model):
        self.child = subprocess.Popen([program, model], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.clock = (~self.child.pid << 3) | 2
        self.child.stdout.readline()
        before, wall, busy = self.memory(), time.perf_counter(), time.clock_gettime(self.clock)
        self.ask("\n")
        self.instructions = self.child.stdout.readline().decode().strip()
        self.load = (time.perf_counter() - wall, time.clock_gettime(self.clock) - busy)
        self.resident = self.memory() - before

    def memory(self):
        lines = open(f"/proc/{self.child.pid}/status").read().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024

    def ask(self, line):
        self.child.stdin.write(line.encode())
        self.child.stdin.flush()

    def embed(self, texts, role, repeat):
        began = time.clock_gettime(self.clock)
        self.ask(json.dumps({"role": role, "texts": texts, "repeat": repeat}) + "\n")
        made = np.array(json.loads(self.child.stdout.readline()))
        return (time.clock_gettime(self.clock) - began) / repeat, made


def main():
    program, model = sys.argv[1:3]
    file = File(os.path.join(model, "e5-small-q4.bin"))
    with tempfile.TemporaryDirectory() as room:
        plain, fused, small, small_fused = (os.path.join(room, f"{name}.onnx") for name in "abcd")
        graph(file, plain)
        # Fused first, so that also the fused products are quantised: the faster of the two counts.
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = fused
        ort.InferenceSession(plain, options, providers=["CPUExecutionProvider"])
        for source, target in ((plain, small), (fused, small_fused)):
            quantize_dynamic(source, target, weight_type=QuantType.QInt8,
                             extra_options={"DefaultTensorType": TensorProto.FLOAT})
        own = Own(program, model)
        others = {"f32": Onnx(plain), "int8": Onnx(small), "int8, fused first": Onnx(small_fused)}
        sizes = {name: os.path.getsize(path) for name, path in (("f32", plain), ("int8", small), ("int8, fused first", small_fused))}
    golden = json.load(open(os.path.join(HERE, "../fixtures/golden.json")))["probes"]
    if len(sys.argv) > 3:
        more = json.load(open(sys.argv[3]))
        golden += [{"text": t, "ids": i, "vector": v} for t, i, v in zip(more["texts"], more["ids"], more["vec"])]
    right = np.array([probe["vector"] for probe in golden], float)
    right /= np.linalg.norm(right, axis=1, keepdims=True)
    for probe in golden:
        assert file.ids("query: " + probe["text"]) == probe["ids"], probe["text"]
    print(f"onnxruntime {ort.__version__}; our instructions: {own.instructions}; {len(golden)} recorded vectors")
    _, made = own.embed([probe["text"] for probe in golden], "query", 1)
    report = {"ours": made}
    for name, other in others.items():
        report[name] = np.concatenate([other.embed([probe["ids"]], 1)[1] for probe in golden])
    for name, made in report.items():
        cosines = (made * right).sum(1)
        print(f"  {name:18} cosine least {cosines.min():.4f}, mean {cosines.mean():.4f}")
    cases = [("short question", [SHORT], "query", 20), ("German sentence", [SENTENCE], "passage", 10),
             ("batch of 16", BATCH, "passage", 2)]
    print(f"{'processor time, ms':20}{'tokens':>8}{'ours':>9}" + "".join(f"{name:>20}{'ratio':>7}" for name in others))
    for what, texts, role, repeat in cases:
        ids = [file.ids(f"{role}: {text}") for text in texts]
        times = {name: [] for name in ["ours", *others]}
        for _ in range(int(os.environ.get("ROUNDS", "15"))):
            times["ours"].append(own.embed(texts, role, repeat)[0])
            for name, other in others.items():
                times[name].append(other.embed(ids, repeat)[0])
        middle = {name: statistics.median(each) * 1e3 for name, each in times.items()}
        row = "".join(f"{middle[name]:20.2f}{middle['ours'] / middle[name]:7.2f}" for name in others)
        print(f"{what:20}{sum(map(len, ids)):8}{middle['ours']:9.2f}{row}")
    loads = [own] + [Own(program, model) for _ in range(4)]
    wall, busy = (statistics.median(each.load[i] for each in loads) for i in (0, 1))
    print(f"load, digest checked: {wall:.2f} s ({busy:.2f} s of processor time); resident for the model: "
          f"{own.resident:.0f} MiB after loading, program and all {own.memory():.0f} MiB after use")
    for name, other in others.items():
        print(f"  onnxruntime {name}: load {other.load[0]:.2f} s, file {sizes[name] / 1e6:.0f} MB")


main()
