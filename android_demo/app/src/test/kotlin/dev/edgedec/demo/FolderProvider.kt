package dev.edgedec.demo

import android.content.ContentProvider
import android.content.ContentValues
import android.database.Cursor
import android.database.MatrixCursor
import android.net.Uri
import android.os.ParcelFileDescriptor
import android.provider.DocumentsContract
import android.provider.DocumentsContract.Document
import java.io.File

/** A folder as the system's picker gives it to an app. */
class FolderProvider : ContentProvider() {
    private lateinit var root: File

    /** Offers [folder] and returns what the picker would. */
    fun offer(folder: File): Uri {
        root = checkNotNull(folder.parentFile)
        return DocumentsContract.buildTreeDocumentUri(AUTHORITY, "card:${folder.name}")
    }

    override fun query(uri: Uri, columns: Array<String>?, where: String?, values: Array<String>?, order: String?): Cursor {
        val id = DocumentsContract.getDocumentId(uri)
        val rows = MatrixCursor(columns)
        for (file in file(id).listFiles().orEmpty()) {
            val row = rows.newRow()
            for (column in columns.orEmpty()) {
                when (column) {
                    Document.COLUMN_DOCUMENT_ID -> row.add("$id/${file.name}")
                    Document.COLUMN_DISPLAY_NAME -> row.add(file.name)
                    Document.COLUMN_SIZE -> row.add(if (file.isFile) file.length() else null)
                }
            }
        }
        return rows
    }

    override fun openFile(uri: Uri, mode: String): ParcelFileDescriptor =
        ParcelFileDescriptor.open(file(DocumentsContract.getDocumentId(uri)), ParcelFileDescriptor.MODE_READ_ONLY)

    private fun file(id: String) = File(root, id.removePrefix("card:"))

    override fun onCreate() = true
    override fun getType(uri: Uri): String? = null
    override fun insert(uri: Uri, values: ContentValues?): Uri? = null
    override fun delete(uri: Uri, where: String?, values: Array<String>?) = 0
    override fun update(uri: Uri, values: ContentValues?, where: String?, args: Array<String>?) = 0

    companion object {
        const val AUTHORITY = "dev.edgedec.demo.card"
    }
}
