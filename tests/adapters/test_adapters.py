"""Encoders in other frameworks: their own stores find the translation, and settings come back."""

import numpy as np
import pytest

import xling_jax

TEXTS = ["Wo ist der nächste Bahnhof?", "Das Haus ist rot.", "Il fait beau aujourd'hui."]
QUERY = "Where is the train station?"


@pytest.fixture(scope="module")
def expected():
    return xling_jax.load("mini", truncate_dim=64).encode([*TEXTS, QUERY], normalize=True)


def is_close(vectors, expected):
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-6)


def test_langchain(expected):
    vectorstores = pytest.importorskip("langchain_core.vectorstores")
    from xling_jax.adapters.langchain import XlingEmbeddings

    embeddings = XlingEmbeddings("mini", truncate_dim=64)
    is_close(embeddings.embed_documents(TEXTS), expected[:3])
    is_close(embeddings.embed_query(QUERY), expected[3])
    store = vectorstores.InMemoryVectorStore.from_texts(TEXTS, embeddings)
    (found,) = store.similarity_search(QUERY, k=1)
    assert found.page_content == TEXTS[0]


@pytest.mark.slow
def test_llama_index(expected):
    core = pytest.importorskip("llama_index.core")
    from xling_jax.adapters.llama_index import XlingEmbedding

    model = XlingEmbedding("mini", truncate_dim=64)
    is_close(model.get_text_embedding_batch(TEXTS), expected[:3])
    is_close(model.get_query_embedding(QUERY), expected[3])
    again = XlingEmbedding.from_dict(model.to_dict())
    is_close(again.get_text_embedding(TEXTS[0]), expected[0])
    nodes = [core.schema.TextNode(text=text) for text in TEXTS]
    retriever = core.VectorStoreIndex(nodes, embed_model=model).as_retriever(similarity_top_k=1)
    (found,) = retriever.retrieve(QUERY)
    assert found.text == TEXTS[0]


@pytest.mark.slow
def test_haystack(expected, monkeypatch):
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    haystack = pytest.importorskip("haystack")
    from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
    from haystack.document_stores.in_memory import InMemoryDocumentStore

    from xling_jax.adapters.haystack import XlingDocumentEmbedder, XlingTextEmbedder

    documents = [haystack.Document(content=text) for text in TEXTS]
    embedded = XlingDocumentEmbedder("mini", truncate_dim=64).run(documents)["documents"]
    is_close([document.embedding for document in embedded], expected[:3])
    assert documents[0].embedding is None
    store = InMemoryDocumentStore(embedding_similarity_function="cosine")
    store.write_documents(embedded)
    pipeline = haystack.Pipeline()
    pipeline.add_component("text", XlingTextEmbedder("mini", truncate_dim=64))
    pipeline.add_component("retriever", InMemoryEmbeddingRetriever(store, top_k=1))
    pipeline.connect("text.embedding", "retriever.query_embedding")
    (found,) = pipeline.run({"text": {"text": QUERY}})["retriever"]["documents"]
    assert found.content == TEXTS[0]
    stored = pipeline.to_dict()["components"]["text"]["init_parameters"]
    assert stored == {"model": "mini", "truncate_dim": 64}


@pytest.mark.slow
def test_chroma(expected, tmp_path):
    chromadb = pytest.importorskip("chromadb")
    from xling_jax.adapters.chroma import XlingEmbeddingFunction

    settings = chromadb.Settings(anonymized_telemetry=False)
    client = chromadb.PersistentClient(str(tmp_path), settings)
    function = XlingEmbeddingFunction("mini", truncate_dim=64)
    is_close(function(TEXTS), expected[:3])
    is_close(function.embed_query([QUERY]), expected[3:])
    collection = client.create_collection("texts", embedding_function=function)
    collection.add(ids=["a", "b", "c"], documents=TEXTS)
    stored = client.get_collection("texts")  # with the function that it names
    found = stored.query(query_texts=[QUERY], n_results=1)
    assert found["documents"] == [[TEXTS[0]]]
    assert found["distances"][0][0] == pytest.approx(1 - expected[0] @ expected[3], abs=1e-5)
